// Messages for people. log_info / log_warning: said once for the world (rank 0, standard error). log_local: said by this
// rank into its own file logs/rank-NNNN.log once open_rank_log() ran; before that, dropped unless it is an error.
// Standard output is never used here: it belongs to the result of the command.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

namespace magister {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Called once at start-up by main. world_rank decides who speaks for the world.
void set_log_identity(int world_rank, int world_size);
// What standard error shows. kQuiet: warnings and errors. kVerbose: also details (log_local at kDebug), and what every rank says for itself.
// Rank logs have all of it but details, which they have when verbose.
enum class Verbosity { kQuiet, kNormal, kVerbose };
void set_verbosity(Verbosity verbosity) noexcept;
Verbosity verbosity() noexcept;
int log_world_rank() noexcept;

// Opens <directory>/rank-NNNN.log for appending; every later message of this rank also goes there with a time stamp.
void open_rank_log(const std::string& directory);

// The line that a terminal shows and replaces ("" ends it); messages are written above it. Rank 0 on a terminal only, never when quiet.
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
// Said once for the world with the prefix of an error; what ends a run is thrown, not logged.
template <typename... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  detail::write_log(LogLevel::kError, true, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_local(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  detail::write_log(level, false, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace magister
