// GPU discovery in a build without the CUDA runtime: it finds none. It warns once if the host has GPUs, because a job
// that was given GPUs would otherwise run on CPUs unnoticed.
#include <atomic>
#include <filesystem>

#include "magister/core/log.h"
#include "magister/parallel/layout.h"
#include "parallel/devices.h"

namespace magister {

std::vector<GpuDevice> discover_cuda_gpus() {
  static std::atomic<bool> reported{false};
  std::error_code ignored;
  if (std::filesystem::exists("/dev/nvidiactl", ignored) && !reported.exchange(true)) {
    log_warning(
        "this host has NVIDIA GPUs, but the program was built without GPU code (it computes on CPUs); run "
        "MAGISTER_CUDA=ON scripts/build.sh and start it again");
  }
  return {};
}
std::string cuda_runtime_version() { return "none"; }
std::string cuda_driver_version() { return "none"; }
std::string nccl_version() { return "none"; }

}  // namespace magister
