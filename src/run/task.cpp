// The stop sign; see task.h.
#include "magister/run/task.h"

#include <chrono>
#include <cstring>

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

void Task::summarize(RunContext&) {
  fail(ExitCode::kUsage, "{}: a task of kind {} has no summary (only a judge has); name another task", name_, kind_);
}

}  // namespace magister
