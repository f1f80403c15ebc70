#include "app/faults.h"

#include <algorithm>
#include <system_error>
#include <vector>

#include "magister/core/log.h"
#include "magister/parallel/failed_together.h"
#include "magister/train/memory_ladder.h"

namespace magister {

Fault fault_of(const std::exception& error) {
  if (const auto* own = dynamic_cast<const Error*>(&error)) return {own->code(), own->what()};
  if (is_out_of_memory(error)) {
    return {ExitCode::kInternal,
            "out of memory (the work cannot go on); use a smaller unit_tokens, more ranks per group, or "
            "a machine with more memory"};
  }
  const auto* system = dynamic_cast<const std::system_error*>(&error);
  if (system != nullptr && system->code() == std::errc::resource_unavailable_try_again) {
    return {ExitCode::kConfig,
            "a thread could not be started (the limit of processes, `ulimit -u`, or of the address space, `ulimit -v`, "
            "is reached); raise it, or use fewer cores or ranks a host"};
  }
  return {ExitCode::kInternal,
          fmt::format("{} (the program did not expect it); report it with the command that you gave",
                      printable(error.what(), 2000))};
}

ExitCode settle(const Communicator& failed, const Fault& fault) {
  const int code = static_cast<int>(fault.code);
  if (!all_failed(failed)) {
    log_local(LogLevel::kError, "{}", fault.message);
    abort_job(code);
  }
  const std::vector<std::string> messages = failed.all_gather(fault.message);
  const std::vector<std::uint64_t> codes = failed.all_gather(static_cast<std::uint64_t>(code));
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (std::find(messages.begin(), messages.begin() + static_cast<std::ptrdiff_t>(i), messages[i]) !=
        messages.begin() + static_cast<std::ptrdiff_t>(i)) {
      continue;  // printed already
    }
    const bool shared = std::count(messages.begin(), messages.end(), messages[i]) == failed.size();
    log_error("{}{}", shared ? "" : fmt::format("rank {} of {}: ", i, failed.size()), messages[i]);
  }
  return static_cast<ExitCode>(codes[0]);
}

}  // namespace magister
