// Keeps the libraries loaded that Open MPI opens as its components.
#pragma once

namespace magister {

// Keeps the currently loaded components until the process ends. Call it before MPI_Finalize(), which closes them while
// Open MPI's event thread may still be inside one: with 4.1.4 a message of the launcher at that moment ended a rank by
// SIGSEGV (a jump into mca_pmix_ext3x.so, which was unloaded) and spoiled the job's exit code. Seen on a busy machine,
// a few times in a thousand runs. Local.
void keep_mpi_components() noexcept;

}  // namespace magister
