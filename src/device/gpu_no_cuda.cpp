// A rank's GPU in a build without CUDA: there is none, and functions that need one throw.
#include "magister/core/error.h"
#include "magister/device/gpu.h"

namespace magister {
namespace {

[[noreturn]] void refuse() {
  fail(ExitCode::kConfig,
       "this build has no CUDA (GPUs cannot be used); build with MAGISTER_CUDA=ON or set layout.devices: cpu");
}

}  // namespace

void load_gpu_libraries() { refuse(); }
void open_gpu(int) { refuse(); }
int gpu_compute_capability(int) { refuse(); }
GpuMemory gpu_memory(int) { refuse(); }
std::uint64_t idle_gpu_bytes(int) noexcept { return 0; }
void release_idle_gpu_memory() noexcept {}
GpuAllocated gpu_allocated(int) { refuse(); }
void reset_gpu_peak(int) { refuse(); }
GpuEvent GpuEvent::record() { refuse(); }
GpuEvent::~GpuEvent() = default;
bool GpuEvent::done() const { return true; }
void GpuEvent::wait() const {}

}  // namespace magister
