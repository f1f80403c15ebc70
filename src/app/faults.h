// What happens to a fault that was thrown: ranks that fail together meet in a barrier on a communicator of their own and speak once; a rank that
// waits there longer than 0.7 s is alone with its fault and ends the job.
#pragma once

#include <exception>
#include <string>

#include "magister/core/error.h"
#include "magister/parallel/communicator.h"

namespace magister {

struct Fault {
  ExitCode code;
  std::string message;  // one line, or one a line for an experiment's faults
};

Fault fault_of(const std::exception& error);

// Says the fault, once for what all ranks say alike, and returns rank 0's exit code; does not return where not all ranks have one. failed:
// the ranks that worked together, which nothing else uses. Collective over failed.
ExitCode settle(const Communicator& failed, const Fault& fault);

}  // namespace magister
