// early_launch_works(); see launch.h. Source: CUDA C++ programming guide, "Programmatic Dependent Launch and
// Synchronization".
#include "magister/device/launch.h"

#include <cstdlib>
#include <string_view>

#include "magister/device/gpu.h"

namespace magister::gpu {

bool early_launch_works(const Queue& queue) {
  constexpr int kLeastCapability = 90;
  const char* const wanted = std::getenv("MAGISTER_EARLY_LAUNCH");
  if (wanted != nullptr && std::string_view(wanted) == "0") return false;
  return queue.on_host() || gpu_compute_capability(queue.device) >= kLeastCapability;
}

}  // namespace magister::gpu
