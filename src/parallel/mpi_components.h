// The libraries that Open MPI opens as its components.
#pragma once

namespace magister {

// What is loaded of them now stays loaded until the process ends. Called before MPI_Finalize(), which closes them while Open MPI's own event thread may
// still have a call into one under way: with 4.1.4 a message of the launcher that came just then ended a rank by SIGSEGV (a jump into
// mca_pmix_ext3x.so, which was gone), and the job's exit code with it; seen on a busy machine, a few times in a thousand runs. Local.
void keep_mpi_components() noexcept;

}  // namespace magister
