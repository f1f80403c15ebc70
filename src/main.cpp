// The only file outside a module: MPI around the application. Every rank returns the same exit code through
// MPI_Finalize, unless abort_job() ended the job before. Signal handlers are installed once MPI is up: a hang in
// MPI_Init must stay killable.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "magister/app/application.h"
#include "magister/core/spare_memory.h"
#include "magister/parallel/communicator.h"
#include "magister/tasks/registry.h"

namespace {

int run(int argc, char** argv) {
  magister::release_unwritten_data();  // MPI starts a thread
  static magister::StopSign stop;      // signal handlers use it until the process ends
  magister::MpiSession session(&argc, &argv);
  magister::install_signal_handlers(stop);
  magister::release_spare_memory();  // libraries are loaded, and most of what that touched is not needed again
  const magister::Communicator world = magister::Communicator::world();
  const int code = magister::run_application(world, std::vector<std::string>(argv + 1, argv + argc), stop,
                                             magister::built_in_tasks());
  session.ends_with(code);
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  const int code = run(argc, argv);
// the sanitizers report when a process ends as usual
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  // Everything of ours is closed. Freeing libtorch's table of 3,000 operators one by one would take 0.09 s.
  std::fflush(nullptr);
  std::_Exit(code);
#endif
  return code;
}
