// Binary prefixes by IEC 80000-13.
#include "magister/core/units_of_measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace magister {

namespace {

std::string with_digits(std::uint64_t bytes, int digits) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  static constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  for (; value >= 1023.95 && unit < 5; ++unit) value /= 1024;
  return fmt::format("{:.{}f} {}", value, digits, kUnits[unit]);
}

std::string decimal_with_digits(std::uint64_t bytes, int digits) {
  return fmt::format("{:.{}f} GB", static_cast<double>(bytes) * 1e-9, digits);
}

template <typename Format>
std::pair<std::string, std::string> apart(std::uint64_t first, std::uint64_t second, int digits, const Format& format) {
  constexpr int kMost = 12;
  while (digits < kMost && first != second && format(first, digits) == format(second, digits)) ++digits;
  return {format(first, digits), format(second, digits)};
}

int digits_of(std::uint64_t bytes) { return bytes < 10'000'000'000 ? 2 : 1; }

}  // namespace

std::string format_bytes(std::uint64_t bytes) { return with_digits(bytes, 1); }

std::pair<std::string, std::string> format_bytes_apart(std::uint64_t first, std::uint64_t second) {
  return apart(first, second, 1, with_digits);
}

std::string decimal_bytes(std::uint64_t bytes) { return decimal_with_digits(bytes, digits_of(bytes)); }

std::pair<std::string, std::string> decimal_bytes_apart(std::uint64_t first, std::uint64_t second) {
  return apart(first, second, digits_of(std::min(first, second)), decimal_with_digits);
}

std::string format_duration(double seconds) {
  if (!(seconds < 1e9)) return "unknown";
  const auto whole = static_cast<std::uint64_t>(std::llround(std::max(0.0, seconds)));
  return fmt::format("{}:{:02d}:{:02d}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string format_count(std::uint64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

}  // namespace magister
