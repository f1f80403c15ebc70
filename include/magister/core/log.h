// Messages for people. log_info, log_warning and log_error write once for the world (rank 0, standard error). log_local
// writes into this rank's own file logs/rank-NNNN.log after open_rank_log(); errors, and with kVerbose all messages,
// also go to standard error. Standard output is never used here: it belongs to the result of the command.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

namespace magister {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Called once at start-up by main. Rank 0 of the world writes the messages of log_info, log_warning and log_error.
void set_log_identity(int world_rank, int world_size);
// Messages that standard error shows. kQuiet: warnings and errors. kVerbose: also details (log_local at kDebug) and the
// log_local messages of every rank. Rank logs have all messages; details (kDebug) only with kVerbose.
enum class Verbosity { kQuiet, kNormal, kVerbose };
void set_verbosity(Verbosity verbosity) noexcept;
Verbosity verbosity() noexcept;
int log_world_rank() noexcept;

// Opens <directory>/rank-NNNN.log for appending; every later message of this rank also goes there with a time stamp.
void open_rank_log(const std::string& directory);

// Shows a line that a terminal keeps at the bottom and replaces ("" removes it); messages are written above it. Call it
// only on rank 0 with a terminal. kQuiet ignores it.
void show_live_line(const std::string& text);
bool stderr_is_terminal() noexcept;

namespace detail {
void write_log(LogLevel level, bool once_for_world, const std::string& text) noexcept;
}

template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  detail::write_log(LogLevel::kInfo, true, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  detail::write_log(LogLevel::kWarning, true, fmt::format(format, std::forward<Args>(args)...));
}
// Written once for the world with the prefix of an error. An error that ends the run is thrown, not logged.
template <typename... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  detail::write_log(LogLevel::kError, true, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_local(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  detail::write_log(level, false, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace magister
