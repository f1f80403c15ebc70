// Byte counters over runs short enough that none can overflow; the compiler turns the inner loop into AVX2 at -O3.
#include <algorithm>

#include "io/dataset/newlines.h"

namespace magister {

std::uint64_t count_newlines(std::string_view bytes) noexcept {
  constexpr std::size_t kLanes = 32, kRun = 255 * kLanes;
  std::uint64_t total = 0;
  std::size_t at = 0;
  while (bytes.size() - at >= kLanes) {
    const std::size_t run = std::min(kRun, (bytes.size() - at) / kLanes * kLanes);
    unsigned char counters[kLanes] = {};
    for (std::size_t i = 0; i < run; i += kLanes) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) counters[lane] += bytes[at + i + lane] == '\n' ? 1 : 0;
    }
    for (const unsigned char counter : counters) total += counter;
    at += run;
  }
  for (; at < bytes.size(); ++at) total += bytes[at] == '\n' ? 1 : 0;
  return total;
}

}  // namespace magister
