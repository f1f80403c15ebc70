// Work that one rank does for the whole world: the others wait, and all get its exit code or its fault.
#pragma once

#include <exception>
#include <string>

#include "app/faults.h"
#include "magister/core/error.h"
#include "magister/parallel/communicator.h"

namespace magister {

// Calls work(), which returns an ExitCode, on world rank 0; its error is thrown on every rank. Collective over world.
template <typename Work>
ExitCode on_rank_zero(const Communicator& world, const Work& work) {
  std::uint64_t code = 0;
  std::string fault;
  if (world.rank() == 0) {
    try {
      code = static_cast<std::uint64_t>(work());
    } catch (const std::exception& error) {
      const Fault found = fault_of(error);
      code = static_cast<std::uint64_t>(found.code);
      fault = found.message;
    }
  }
  world.wait_for_all();  // sleeps, since it may take hours
  world.broadcast(&code, sizeof code, 0);
  world.broadcast(fault, 0);
  if (!fault.empty()) throw Error(static_cast<ExitCode>(code), fault);
  return static_cast<ExitCode>(code);
}

}  // namespace magister
