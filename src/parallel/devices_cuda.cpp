// GPU discovery through the CUDA runtime, which honours CUDA_VISIBLE_DEVICES. Without a driver: an empty list, quickly.
#include <cuda_runtime_api.h>
#include <nccl.h>

#include "magister/core/error.h"
#include "magister/parallel/layout.h"

namespace magister {
namespace {

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

}  // namespace

std::vector<GpuDevice> discover_gpus() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    cudaGetLastError();  // no driver or no device: not an error of ours, and not to be found by a later call
    return {};
  }
  std::vector<GpuDevice> devices;
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, index) != cudaSuccess) continue;
    devices.push_back({index, properties.name, uuid_text(properties.uuid), properties.totalGlobalMem, 0,
                       properties.major * 10 + properties.minor});
  }
  return devices;
}

std::string cuda_runtime_version() {
  int version = 0;
  return cudaRuntimeGetVersion(&version) == cudaSuccess ? version_text(version) : "none";
}

std::string cuda_driver_version() {
  int version = 0;
  return cudaDriverGetVersion(&version) == cudaSuccess && version > 0 ? version_text(version) : "none";
}

std::string nccl_version() {
  int version = 0;
  if (ncclGetVersion(&version) != ncclSuccess) return "none";
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace magister
