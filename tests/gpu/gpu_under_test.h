// The GPU that the tests of this folder use. With MAGISTER_GPU_CODE_ON_HOST=1 the host replaces it, to try the tests
// themselves.
#pragma once

#include <cstdlib>
#include <string_view>

#include "magister/device/launch.h"

namespace magister::gpu {

inline bool host_plays_gpu() {
  const char* wanted = std::getenv("MAGISTER_GPU_CODE_ON_HOST");
  return wanted != nullptr && std::string_view(wanted) == "1";
}

inline Queue gpu_queue() { return host_plays_gpu() ? Queue{} : Queue{0, nullptr}; }

}  // namespace magister::gpu
