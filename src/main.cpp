// The only file outside a module: MPI around the application. Every rank returns the same exit code through MPI_Finalize,
// or the job has ended in abort_job() before. Signals are handled once MPI is up: what hangs before must be killable.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "magister/app/application.h"
#include "magister/parallel/communicator.h"
#include "magister/tasks/registry.h"

namespace {

int run(int argc, char** argv) {
  static magister::StopSign stop;  // signal handlers may see it until the process is gone
  magister::MpiSession session(&argc, &argv);
  magister::install_signal_handlers(stop);
  const magister::Communicator world = magister::Communicator::world();
  const int code = magister::run_application(world, std::vector<std::string>(argv + 1, argv + argc), stop,
                                             magister::built_in_tasks());
  session.ends_with(code);
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  const int code = run(argc, argv);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // those report when a process ends as usual
  // Everything of ours is closed. libtorch would take 0.09 s to free its table of 3,000 operators one by one.
  std::fflush(nullptr);
  std::_Exit(code);
#endif
  return code;
}
