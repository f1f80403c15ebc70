// Handles a fault that was thrown. Ranks that fail together meet in a barrier on a communicator of their own and print
// the fault once; a rank that waits there longer than about 0.7 s is alone with its fault and ends the job.
#pragma once

#include <exception>
#include <string>

#include "magister/core/error.h"
#include "magister/parallel/communicator.h"

namespace magister {

struct Fault {
  ExitCode code;
  std::string message;  // one line, or one line per fault of an experiment
};

Fault fault_of(const std::exception& error);

// Prints the fault, once if all ranks have the same, and returns rank 0's exit code; does not return if not all ranks
// have a fault. failed: a communicator of the ranks that worked together, used for this only. Collective over failed.
ExitCode settle(const Communicator& failed, const Fault& fault);

}  // namespace magister
