// Discovers GPUs through the CUDA runtime, which applies CUDA_VISIBLE_DEVICES. Without a driver it returns an empty
// list at once. Free memory comes from NVML (if it can be loaded), because asking the runtime would create a context of
// 300 MB on each GPU.
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nccl.h>

#include <algorithm>
#include <memory>

#include "magister/core/error.h"
#include "magister/device/gpu.h"
#include "magister/parallel/layout.h"
#include "parallel/devices.h"

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

// Empty if the runtime does not report it; it is used in logs only.
std::string pci_text(int index) {
  char text[32] = "";
  if (cudaDeviceGetPCIBusId(text, sizeof text, index) != cudaSuccess) cudaGetLastError();
  return text;
}

// The four functions needed from libnvidia-ml.so.1. The library comes with the driver and its header with the toolkit,
// and a build may have neither. The types are those of NVML's stable C interface.
class Nvml {
 public:
  Nvml()
      : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL), [](void* handle) {
          if (handle != nullptr) dlclose(handle);
        }) {
    if (!library_ || !load(init_, "nvmlInit_v2") || !load(shutdown_, "nvmlShutdown") ||
        !load(by_uuid_, "nvmlDeviceGetHandleByUUID") || !load(memory_, "nvmlDeviceGetMemoryInfo")) {
      return;
    }
    works_ = init_() == kSuccess;
  }
  ~Nvml() {
    if (works_) shutdown_();
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  std::uint64_t free_bytes(const std::string& uuid, std::uint64_t otherwise) const {
    Device device = nullptr;
    Memory memory;
    if (!works_) return otherwise;
    // For an instance of a divided GPU (MIG) the runtime uses the prefix of a whole GPU, NVML another one.
    const std::string instance = "MIG-" + uuid.substr(uuid.find('-') + 1);
    if (by_uuid_(uuid.c_str(), &device) != kSuccess && by_uuid_(instance.c_str(), &device) != kSuccess)
      return otherwise;
    return memory_(device, &memory) == kSuccess ? memory.free : otherwise;
  }

 private:
  using Device = struct nvmlDevice_st*;
  struct Memory {
    unsigned long long total = 0, free = 0, used = 0;
  };
  static constexpr int kSuccess = 0;

  template <typename Function>
  bool load(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(dlsym(library_.get(), name));
    return function != nullptr;
  }
  std::unique_ptr<void, void (*)(void*)> library_;
  int (*init_)() = nullptr;
  int (*shutdown_)() = nullptr;
  int (*by_uuid_)(const char*, Device*) = nullptr;
  int (*memory_)(Device, Memory*) = nullptr;
  bool works_ = false;
};

}  // namespace

std::vector<GpuDevice> discover_cuda_gpus() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    cudaGetLastError();  // no driver or no device is not an error here, and a later call must not find it
    return {};
  }
  if (count == 0) return {};
  const Nvml nvml;
  std::vector<GpuDevice> devices;
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp properties{};
    const cudaError_t code = cudaGetDeviceProperties(&properties, index);
    MAGISTER_CHECK(
        code == cudaSuccess, ExitCode::kInputOutput,
        "the CUDA runtime counts {} GPUs, but cuda:{} does not answer: {} (it may have fallen off the bus); leave it "
        "out with CUDA_VISIBLE_DEVICES and tell the administrator",
        count, index, cudaGetErrorString(code));
    GpuDevice device{.index = index,
                     .name = properties.name,
                     .uuid = uuid_text(properties.uuid),
                     .pci = pci_text(index),
                     .total_bytes = properties.totalGlobalMem,
                     .compute_capability = properties.major * 10 + properties.minor};
    // Memory that an earlier task freed is in the allocator's cache.
    device.free_bytes =
        std::min(device.total_bytes, nvml.free_bytes(device.uuid, device.total_bytes) + idle_gpu_bytes(index));
    devices.push_back(std::move(device));
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
