// The program behind main(): from arguments to an exit code that is the same on every rank.
#pragma once

#include <string>
#include <vector>

#include "magister/parallel/communicator.h"
#include "magister/run/task_kinds.h"
#include "magister/runtime/stop.h"

namespace magister {

// Runs one command, with the tasks of `kinds`, and returns its exit code after saying every message. A fault that all ranks find together is said
// once and returned by all; a fault of some ranks alone is said by them and ends the job at once (abort_job), because the
// others wait in a collective call that will never end. Collective over world.
int run_application(const Communicator& world, const std::vector<std::string>& arguments, StopSign& stop,
                    TaskKinds kinds);

// SIGTERM, SIGINT, SIGUSR1 and SIGUSR2 raise the sign and do nothing else; SIGPIPE is ignored. Never undone: the sign
// must live as long as the process.
void install_signal_handlers(StopSign& stop);

}  // namespace magister
