// printable() and terminal_safe() escape what a terminal could obey; nearest_name() finds the candidate for "did you
// mean". UTF-8 is checked by utf8.cpp (RFC 3629).
#include "magister/core/error.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "magister/core/utf8.h"

namespace magister {

namespace {

// Optimal string alignment distance (Damerau): insertions, deletions, substitutions and swaps of neighbours, the usual
// typing errors.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) now[j] = std::min(now[j], before[j - 2] + 1);
    }
    before.swap(last);
    last.swap(now);
  }
  return last[b.size()];
}

// C1 controls (U+0080..U+009F) control terminals as escape sequences do.
bool is_control(std::string_view code_point) {
  const auto first = static_cast<unsigned char>(code_point[0]);
  if (code_point.size() == 1) return first < 0x20 || first == 0x7F;
  return first == 0xC2 && static_cast<unsigned char>(code_point[1]) < 0xA0;
}

}  // namespace

std::string printable(std::string_view text, std::size_t max_bytes) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_sequence_length(text.substr(at));
    std::string piece;
    const std::string_view code_point = text.substr(at, length == 0 ? 1 : length);
    if (length == 0 || is_control(code_point)) {
      for (const char byte : code_point) piece += fmt::format("\\x{:02X}", static_cast<unsigned char>(byte));
    } else {
      piece = code_point;
    }
    if (out.size() + piece.size() > max_bytes) return out + "...";
    out += piece;
    at += code_point.size();
  }
  return out;
}

std::string terminal_safe(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_sequence_length(text.substr(at));
    const std::string_view code_point = text.substr(at, length == 0 ? 1 : length);
    if (code_point != "\n" && code_point != "\t" && (length == 0 || is_control(code_point))) {
      for (const char byte : code_point) out += fmt::format("\\x{:02X}", static_cast<unsigned char>(byte));
    } else {
      out += code_point;
    }
    at += code_point.size();
  }
  return out;
}

std::string nearest_name(std::string_view word, const std::vector<std::string>& candidates) {
  std::size_t best = std::max<std::size_t>(2, word.size() / 3) + 1;
  std::string nearest;
  if (word.size() > 200) return nearest;  // no name is that long, and the cost of the distance is quadratic
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate);
    // A candidate that shares no character with the word is no near miss ("a" does not mean "id").
    if (distance < best && distance < std::max(word.size(), candidate.size())) {
      best = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

namespace detail {
void assertion_failed(const char* expression, const char* file, int line) {
  std::fprintf(stderr, "magister: %s:%d: assertion failed: %s (the program is wrong here, not its input); report it\n",
               file, line, expression);
  std::abort();
}
}  // namespace detail

}  // namespace magister
