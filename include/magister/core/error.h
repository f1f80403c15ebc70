// Errors and checks. All messages have one form: "<problem> (<why it matters>); <what to do>".
// MAGISTER_CHECK checks input from users and files (always on, throws). MAGISTER_ASSERT checks the program itself
// (debug builds only).
// Exit codes follow sysexits.h: 64 usage, 65 data, 70 internal, 74 input/output, 75 stopped cleanly, 78 configuration.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace magister {

enum class ExitCode : int {
  kDone = 0,
  kUsage = 64,
  kData = 65,
  kInternal = 70,
  kInputOutput = 74,
  kStopped = 75,
  kConfig = 78,
};

// The only exception type that the program throws itself. what() is the whole message, ready for a terminal: one line,
// in which the thrower has escaped control characters of foreign text (see printable()).
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const noexcept { return code_; }

 private:
  ExitCode code_;
};

// Throws Error with a formatted message. Example:
//   fail(ExitCode::kData, "{}:{}: not valid JSON (the record cannot be read); fix this line or remove it", file, line);
template <typename... Args>
[[noreturn]] void fail(ExitCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

// Makes text from files or users safe for one line of a terminal or log: control characters and invalid UTF-8 become
// \xNN; text longer than max_bytes is cut and ends with "...".
std::string printable(std::string_view text, std::size_t max_bytes = 200);

// Makes a whole message or result safe for a terminal: like printable(), but line breaks and tabs stay, and nothing is
// cut.
std::string terminal_safe(std::string_view text);

// "did you mean" for keys, commands and names: returns the candidate with the smallest edit distance. The result is
// empty if no candidate is within a third of the word's length (at least 2).
std::string nearest_name(std::string_view word, const std::vector<std::string>& candidates);

namespace detail {
[[noreturn]] void assertion_failed(const char* expression, const char* file, int line);
}

}  // namespace magister

// Always on, in release builds, too. Example: MAGISTER_CHECK(condition, ExitCode::kData, "format", args...)
#define MAGISTER_CHECK(condition, code, ...) \
  do {                                       \
    if (!(condition)) [[unlikely]] {         \
      ::magister::fail((code), __VA_ARGS__); \
    }                                        \
  } while (false)

#ifdef NDEBUG
#define MAGISTER_ASSERT(condition) static_cast<void>(0)
#else
#define MAGISTER_ASSERT(condition) \
  ((condition) ? static_cast<void>(0) : ::magister::detail::assertion_failed(#condition, __FILE__, __LINE__))
#endif
