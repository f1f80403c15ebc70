// Formats sizes and times the same way in every message: bytes in powers of 1024, times as h:mm:ss.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace magister {

// "1.5 GiB", "1023 B"
std::string format_bytes(std::uint64_t bytes);
// Two amounts that are compared, with enough digits to show the difference: "22.08 GiB", "22.12 GiB".
std::pair<std::string, std::string> format_bytes_apart(std::uint64_t first, std::uint64_t second);
// The same in powers of 1000: "22.08 GB", "22.12 GB".
std::pair<std::string, std::string> decimal_bytes_apart(std::uint64_t first, std::uint64_t second);
// "9.99 GB", "22.1 GB"
std::string decimal_bytes(std::uint64_t bytes);
// "1:02:03"; "unknown" for 1e9 seconds or more, and for NaN
std::string format_duration(double seconds);
// "1 unit", "2 units"
std::string format_count(std::uint64_t count, std::string_view noun);

}  // namespace magister
