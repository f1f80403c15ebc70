// Counts in bytes, over runs so short that no counter can overflow; the compiler turns the inner loop into AVX2 at -O3.
#include <algorithm>

#include "io/dataset/newlines.h"

namespace magister {

namespace {

constexpr std::size_t kLanes = 32, kRun = 255 * kLanes;

// Counts the places of [0, count) for which counts(i) is 1; else it is 0.
template <typename Counts>
std::uint64_t count_places(std::size_t count, const Counts& counts) noexcept {
  std::uint64_t total = 0;
  std::size_t at = 0;
  while (count - at >= kLanes) {
    const std::size_t run = std::min(kRun, (count - at) / kLanes * kLanes);
    unsigned char counters[kLanes] = {};
    for (std::size_t i = 0; i < run; i += kLanes) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) counters[lane] += counts(at + i + lane);
    }
    for (const unsigned char counter : counters) total += counter;
    at += run;
  }
  for (; at < count; ++at) total += counts(at);
  return total;
}

}  // namespace

std::uint64_t count_newlines(std::string_view bytes) noexcept {
  const char* const at = bytes.data();
  return count_places(bytes.size(), [at](std::size_t i) -> unsigned char { return at[i] == '\n' ? 1 : 0; });
}

std::uint64_t count_newlines_before(char next, std::string_view bytes) noexcept {
  if (bytes.size() < 2) return 0;
  const char* const at = bytes.data();
  return count_places(bytes.size() - 1, [at, next](std::size_t i) -> unsigned char {
    return static_cast<unsigned char>((at[i] == '\n' ? 1 : 0) & (at[i + 1] == next ? 1 : 0));
  });
}

bool is_blank_line(std::string_view line) noexcept { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

LinesOfPiece count_lines(std::string_view piece, bool skips_blank) noexcept {
  LinesOfPiece lines;
  lines.ends = count_newlines(piece);
  if (lines.ends == 0) {
    lines.begins = lines.ends_open = skips_blank ? !is_blank_line(piece) : !piece.empty();
    return lines;
  }
  const std::size_t first = piece.find('\n'), last = piece.rfind('\n');
  const std::string_view open = piece.substr(last + 1);
  lines.begins = !skips_blank || !is_blank_line(piece.substr(0, first));
  lines.ends_open = skips_blank ? !is_blank_line(open) : !open.empty();
  lines.records = lines.ends - 1;
  const std::string_view whole = piece.substr(first, last - first);  // the complete lines, each after its '\n'
  // Nearly always every line is an object without white space before it; one fast count of all lines shows that.
  if (!skips_blank || count_newlines_before('{', whole) == lines.records) return lines;
  lines.records = 0;
  for (std::size_t begin = first + 1; begin <= last;) {
    const std::size_t end = piece.find('\n', begin);
    lines.records += is_blank_line(piece.substr(begin, end - begin)) ? 0 : 1;
    begin = end + 1;
  }
  return lines;
}

}  // namespace magister
