// One fwrite and one flush an event: a line is there whole or not at all, also after kill -9 of the process.
// Invalid UTF-8 in a field is replaced, so that the log stays JSON whatever a path holds.
#include "magister/run/run_log.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "magister/core/error.h"
#include "magister/core/log.h"

namespace magister {

namespace {

// RFC 3339 in UTC with milliseconds.
std::string time_stamp() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto milliseconds =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  return fmt::format("{}.{:03d}Z", text, milliseconds);
}

}  // namespace

RunLog::RunLog(const std::string& path) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (!error) {
    file_.reset(std::fopen(path.c_str(), "ae"));
    if (!file_) error = {errno, std::generic_category()};
  }
  if (error) {
    fail(ExitCode::kInputOutput, "{}: {} (the run could not be followed or explained afterwards); make its folder "
         "writable or choose another output.directory", printable(path), error.message());
  }
}

void RunLog::event(const std::string& name, const nlohmann::ordered_json& fields) noexcept {
  if (!file_) return;
  try {
    nlohmann::ordered_json line = {{"schema", kSchema}, {"time", time_stamp()}, {"event", name}};
    if (fields.is_object()) line.update(fields);
    const std::string text = line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
    const std::lock_guard lock(mutex_);
    const bool written = std::fwrite(text.data(), 1, text.size(), file_.get()) == text.size() && std::fflush(file_.get()) == 0;
    if (!written && !failed_) {
      failed_ = true;
      log_warning("run.jsonl cannot be written: {} (events are lost from here on, results are not)", std::strerror(errno));
    }
  } catch (...) {
    // An event that cannot be told must not end a run.
  }
}

}  // namespace magister
