// StopSign: the reason to end a run cleanly before its work is done, and the agreement of the ranks to leave.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "magister/parallel/communicator.h"

namespace magister {

// The reason why a run should stop cleanly. Signal handlers set it, so it has only lock-free atomics.
struct StopSign {
  std::atomic<int> signal{0};                         // SIGTERM, SIGINT, SIGUSR1 or SIGUSR2; 0: none
  std::atomic<std::int64_t> deadline_nanoseconds{0};  // steady clock, from --max-wall; 0: none
  bool raised() const;
  // "signal 15 (Terminated)" or "the end of the wall time"; empty when not raised.
  std::string reason() const;
};

// Called between the small steps of everything that can take long: records, blocks of a file, tensors, passes.
using StopPoll = std::function<bool()>;

// Throws Error(kStopped), which is not shown to users, on every rank if one of them was asked to stop. A loop that
// polls first ends early on its own rank and then calls this, so that all ranks leave at the same place. Collective
// over world.
void leave_if_stopped(const Communicator& world, const StopSign& stop);

}  // namespace magister
