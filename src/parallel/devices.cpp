// The GPUs that this process sees: those of CUDA, emulated ones for tests of layouts, or those of a planned cluster.
#include "parallel/devices.h"

#include <cstdlib>
#include <string>
#include <string_view>

#include "magister/core/error.h"
#include "magister/core/host_name.h"
#include "magister/parallel/gpu_cards.h"

namespace magister {

bool gpus_on_host() {
  if (!planned_hosts().empty()) return true;
  const char* memories = std::getenv("MAGISTER_GPUS_ON_HOST");
  return memories != nullptr && *memories != '\0';
}

std::vector<GpuDevice> discover_gpus() {
  if (!planned_hosts().empty()) return planned_hosts().front();
  if (!gpus_on_host()) return discover_cuda_gpus();
  std::vector<GpuDevice> gpus;
  const char* at = std::getenv("MAGISTER_GPUS_ON_HOST");
  while (*at != '\0') {
    char* end = nullptr;
    GpuDevice gpu;
    gpu.total_bytes = gpu.free_bytes = std::strtoull(at, &end, 10) << 20;
    if (end == at) return {};
    gpu.index = static_cast<int>(gpus.size());
    gpu.name = "emulated on the host";
    gpu.uuid = fmt::format("GPU-{}-{}", host_name(), gpu.index);
    gpu.pci = fmt::format("0000:{:02x}:00.0", gpu.index);
    gpu.compute_capability = 90;
    gpus.push_back(gpu);
    at = *end == ',' ? end + 1 : end;
    if (at == end && *end != '\0') return {};
  }
  return gpus;
}

}  // namespace magister
