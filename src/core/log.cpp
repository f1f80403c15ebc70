// One writer for standard error and one spdlog logger for the rank's own file; a mutex keeps the live line and messages
// apart. Standard error has no time stamps (it is read now); the rank's file has them (it is read later).
#include "magister/core/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "magister/core/error.h"

namespace magister {

namespace {

struct LogState {
  std::mutex mutex;
  std::atomic<int> world_rank = 0;  // this and the verbosity are also read without the mutex
  int world_size = 1;
  std::atomic<Verbosity> verbosity = Verbosity::kNormal;
  std::shared_ptr<spdlog::logger> rank_log;
  std::string live_line;
};

// Never destroyed: threads may still write while statics are destroyed.
LogState& state() {
  static auto* const state = new LogState;
  return *state;
}

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

// Writes a message with one write(2), so that messages of several ranks on one terminal do not mix inside a line.
void write_stderr(std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written <= 0) return;  // standard error is gone: there is no place to report it
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

std::string stderr_text(const LogState& log, LogLevel level, bool once_for_world, const std::string& text) {
  std::string head;
  if (level == LogLevel::kError) head = "magister: ";
  if (level == LogLevel::kWarning) head = "magister: warning: ";
  if (level == LogLevel::kDebug) head = "debug: ";
  if (!once_for_world && log.world_size > 1)
    head += fmt::format("rank {} of {}: ", log.world_rank.load(), log.world_size);
  std::string lines;
  if (!log.live_line.empty()) lines = "\r\x1b[K";
  // A message may have several lines (the faults of an experiment); each line gets the head. A table (info) has none.
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines += head + text.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  return lines + log.live_line;
}

}  // namespace

void set_log_identity(int world_rank, int world_size) {
  LogState& log = state();
  const std::lock_guard lock(log.mutex);
  log.world_rank = world_rank;
  log.world_size = world_size;
}

void set_verbosity(Verbosity verbosity) noexcept {
  LogState& log = state();
  const std::lock_guard lock(log.mutex);
  log.verbosity = verbosity;
}

Verbosity verbosity() noexcept { return state().verbosity; }

int log_world_rank() noexcept { return state().world_rank; }

void open_rank_log(const std::string& directory) {
  LogState& log = state();
  const std::lock_guard lock(log.mutex);
  const std::string path = fmt::format("{}/rank-{:04d}.log", directory, log.world_rank.load());
  try {
    std::filesystem::create_directories(directory);
    const auto kind = std::filesystem::symlink_status(path).type();
    if (kind != std::filesystem::file_type::not_found && kind != std::filesystem::file_type::regular) {
      throw std::runtime_error("it is no regular file, and nothing is written through a link");
    }
    auto logger = std::make_shared<spdlog::logger>("rank", std::make_shared<spdlog::sinks::basic_file_sink_mt>(path));
    logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %^%l%$ %v");
    logger->set_level(spdlog::level::debug);
    logger->flush_on(spdlog::level::info);  // the last messages before a crash must be in the file
    // Reports a full disk once (spdlog itself would repeat the report). The handler is called while a message is
    // written and the mutex is held, so it writes to standard error directly.
    logger->set_error_handler([path, reported = false](const std::string& reason) mutable {
      if (std::exchange(reported, true)) return;
      const std::string text =
          fmt::format("{}: cannot be written: {} (log messages are lost, results are not); free space", printable(path),
                      printable(reason));
      write_stderr(stderr_text(state(), LogLevel::kWarning, false, text));
    });
    log.rank_log = std::move(logger);
  } catch (const std::exception& error) {
    fail(ExitCode::kInputOutput,
         "{}: the log of rank {} cannot be opened: {} (a failure would leave no trace); "
         "make the folder writable or choose another output.directory",
         printable(path), log.world_rank, printable(error.what()));
  }
}

void show_live_line(const std::string& text) {
  LogState& log = state();
  const std::lock_guard lock(log.mutex);
  if (log.verbosity == Verbosity::kQuiet || (text.empty() && log.live_line.empty())) return;
  log.live_line = terminal_safe(text);
  write_stderr("\r\x1b[K" + log.live_line);
}

bool stderr_is_terminal() noexcept { return ::isatty(STDERR_FILENO) == 1; }

namespace detail {

// The last step before a terminal or a file: no control character of foreign text passes it.
void write_log(LogLevel level, bool once_for_world, const std::string& message) noexcept {
  try {
    const std::string text = terminal_safe(message);
    LogState& log = state();
    const std::lock_guard lock(log.mutex);
    const bool verbose = log.verbosity == Verbosity::kVerbose;
    if (level == LogLevel::kDebug && !verbose) return;
    if (log.rank_log) log.rank_log->log(spdlog_level(level), "{}", text);
    const bool is_shown = once_for_world ? log.world_rank == 0 : verbose || level == LogLevel::kError;
    if (is_shown && (log.verbosity != Verbosity::kQuiet || level >= LogLevel::kWarning))
      write_stderr(stderr_text(log, level, once_for_world, text));
  } catch (...) {
    // A message that cannot be formatted or stored must not end a run.
  }
}

}  // namespace detail

}  // namespace magister
