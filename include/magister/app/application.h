// The program that main() calls: from arguments to an exit code that is the same on every rank.
#pragma once

#include <string>
#include <vector>

#include "magister/parallel/communicator.h"
#include "magister/run/task_kinds.h"
#include "magister/runtime/stop.h"

namespace magister {

// Runs one command with the tasks of `kinds`, prints all messages and returns the exit code. A fault of all ranks is
// printed once, and all return its code; a fault of only some ranks is printed by them and ends the job at once
// (abort_job), because the other ranks wait in a collective call that would never end. Collective over world.
int run_application(const Communicator& world, const std::vector<std::string>& arguments, StopSign& stop,
                    TaskKinds kinds);

// Installs handlers: SIGTERM, SIGINT, SIGUSR1 and SIGUSR2 only set the stop sign; SIGPIPE is ignored. The handlers are
// never removed, so the sign must exist until the process ends.
void install_signal_handlers(StopSign& stop);

}  // namespace magister
