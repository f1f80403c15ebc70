// Sizes and times for people, spelled alike in every message: bytes in powers of 1024, times as h:mm:ss.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace magister {

// "1.5 GiB", "1023 B"
std::string format_bytes(std::uint64_t bytes);
// "1:02:03"; "unknown" for 1e9 seconds or more, and for NaN
std::string format_duration(double seconds);
// "1 unit", "2 units"
std::string format_count(std::uint64_t count, std::string_view noun);

}  // namespace magister
