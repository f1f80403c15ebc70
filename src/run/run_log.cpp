// One write(2) for each event: a line is written completely or not at all, even after kill -9 of the process. Invalid
// UTF-8 in a field is replaced, so the log is always JSON, whatever a path contains.
#include "magister/run/run_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "magister/core/error.h"
#include "magister/core/fail_point.h"
#include "magister/core/host_name.h"
#include "magister/core/log.h"
#include "magister/io/whole_file.h"

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

// A name for this start of this process. It is unique: no other process on this host has this number at this time.
std::string new_start() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return fmt::format("{}-{}-{:x}", host_name(), ::getpid(),
                     std::chrono::duration_cast<std::chrono::microseconds>(now).count());
}

}  // namespace

RunLog::RunLog(const std::string& path, const std::string& start)
    : path_(path), start_(start.empty() ? new_start() : start) {
  make_folders(std::filesystem::path(path).parent_path().string());
  // O_NONBLOCK: opening a FIFO must not wait for its reader.
  descriptor_.reset(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644));
  const int error = errno;
  struct stat status{};
  const bool regular = descriptor_.is_open() && ::fstat(descriptor_.number(), &status) == 0 && S_ISREG(status.st_mode);
  if (regular) return;
  descriptor_.reset();
  fail(ExitCode::kInputOutput,
       "{}: {} (the run could not be followed or explained afterwards); move it away, make its folder "
       "writable or choose another output.directory",
       printable(path),
       error == ELOOP        ? "is a symbolic link, and nothing is written through one"
       : status.st_mode != 0 ? "is not a regular file"
                             : std::strerror(error));
}

// Writes the whole line or nothing: a line that a full disk cuts is removed again, because the next line would be
// appended to it.
void RunLog::append(const std::string& line) {
  struct stat before{};
  const bool known = ::fstat(descriptor_.number(), &before) == 0;
  std::string_view rest = line;
  while (!rest.empty()) {
    const bool pretend_full = fail_point("run_log.write");
    const ssize_t n = pretend_full ? -1 : ::write(descriptor_.number(), rest.data(), rest.size());
    if (pretend_full) errno = ENOSPC;
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    rest.remove_prefix(static_cast<std::size_t>(n));
  }
  if (rest.empty()) return;
  const int error = errno;
  if (rest.size() < line.size() && known && ::ftruncate(descriptor_.number(), before.st_size) != 0) {
    log_warning("{}: its last line is cut short and cannot be taken back: {}", printable(path_), std::strerror(errno));
  }
  if (num_lost_++ > 0) return;
  log_warning("{}: cannot be written: {} (events are lost from here on, results are not; the run ends with {})",
              printable(path_), std::strerror(error), static_cast<int>(ExitCode::kInputOutput));
}

void RunLog::event(const std::string& name, const nlohmann::ordered_json& fields) noexcept {
  if (!descriptor_.is_open()) return;
  try {
    nlohmann::ordered_json line = {{"schema", kSchema}, {"time", time_stamp()}, {"start", start_}, {"event", name}};
    if (fields.is_object()) line.update(fields);
    const std::string text = line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
    const std::lock_guard lock(mutex_);
    append(text);
  } catch (...) {
    // An event that cannot be written must not end a run.
  }
}

}  // namespace magister
