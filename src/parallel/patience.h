// How long shards wait for each other in work on their devices.
#pragma once

#include <chrono>
#include <cstdlib>

namespace magister {

// 10 minutes, or MAGISTER_NCCL_TIMEOUT_SECONDS.
inline std::chrono::steady_clock::duration group_patience() {
  const char* text = std::getenv("MAGISTER_NCCL_TIMEOUT_SECONDS");
  const double seconds = text == nullptr ? 600 : std::strtod(text, nullptr);
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(seconds > 0 ? seconds : 600));
}

}  // namespace magister
