// The stop sign, and the agreement of ranks on it; see stop.h.
#include "magister/runtime/stop.h"

#include <fmt/format.h>

#include <chrono>
#include <cstring>

#include "magister/core/error.h"

namespace magister {

bool StopSign::raised() const {
  if (signal.load(std::memory_order_relaxed) != 0) return true;
  const std::int64_t deadline = deadline_nanoseconds.load(std::memory_order_relaxed);
  return deadline != 0 && std::chrono::steady_clock::now().time_since_epoch() >= std::chrono::nanoseconds(deadline);
}

std::string StopSign::reason() const {
  const int number = signal.load(std::memory_order_relaxed);
  if (number != 0) return fmt::format("signal {} ({})", number, strsignal(number));
  return raised() ? "the end of the wall time" : "";
}

void leave_if_stopped(const Communicator& world, const StopSign& stop) {
  if (world.max(static_cast<std::uint64_t>(stop.raised())) != 0) throw Error(ExitCode::kStopped, "stopped");
}

}  // namespace magister
