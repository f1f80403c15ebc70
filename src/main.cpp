// The only file outside a module: MPI around the application. Every rank returns the same exit code through MPI_Finalize,
// or the job has ended in abort_job() before. Signals are handled once MPI is up: what hangs before must be killable.
#include <string>
#include <vector>

#include "magister/app/application.h"
#include "magister/parallel/communicator.h"
#include "magister/tasks/registry.h"

int main(int argc, char** argv) {
  static magister::StopSign stop;  // signal handlers may see it until the process is gone
  const magister::MpiSession session(&argc, &argv);
  magister::install_signal_handlers(stop);
  const magister::Communicator world = magister::Communicator::world();
  return magister::run_application(world, std::vector<std::string>(argv + 1, argv + argc), stop,
                                   magister::built_in_tasks());
}
