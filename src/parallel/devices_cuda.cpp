// GPU discovery through the CUDA runtime, which honours CUDA_VISIBLE_DEVICES. Without a driver: an empty list, quickly.
// Free memory comes from NVML (loaded when it is there): asking the runtime would make a context of 300 MB on each GPU.
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

// Empty where the runtime does not say it: it is for logs alone.
std::string pci_text(int index) {
  char text[32] = "";
  if (cudaDeviceGetPCIBusId(text, sizeof text, index) != cudaSuccess) cudaGetLastError();
  return text;
}

// The four functions that are needed of libnvidia-ml.so.1. The library comes with the driver and its header with the
// toolkit, of which a build may have neither; the types are those of NVML's stable C interface.
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
    // The runtime names an instance of a divided GPU (MIG) like a whole one; NVML by another prefix.
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
    cudaGetLastError();  // no driver or no device: not an error of ours, and not to be found by a later call
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
    // What the task before has freed stands in the allocator's reserve.
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
