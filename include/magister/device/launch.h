// Starts kernels: on a GPU's stream, or block by block on the host (host_block.h).
#pragma once

#include "magister/core/error.h"
#include "magister/device/device_code.h"
#include "magister/device/host_block.h"
#include "magister/device/launch_watch.h"

namespace magister::gpu {

// The destination of kernels. Without a device they run on the host before launch() returns.
struct Queue {
  int device = -1;         // CUDA runtime index
  void* stream = nullptr;  // cudaStream_t of that device, which must be the thread's current one
  // A kernel may begin while the previous one ends (programmatic dependent launch): its blocks are placed and read
  // weights meanwhile, and wait before they read what earlier kernels write (run_thread() in device_code.h). After work
  // that is not one of our kernels it begins when that work has ended.
  bool early = false;
  bool on_host() const { return device < 0; }
};

// Returns whether kernels may begin early: on GPUs from compute capability 9.0 on, unless MAGISTER_EARLY_LAUNCH=0. Also
// true on a host queue, whose kernels run one after another in any case.
bool early_launch_works(const Queue& queue);

// Loads the code of all our kernels on the thread's device. Otherwise the first start of a kernel loads it and waits
// for the device. A peer sum there may be waiting for a shard that loads its own code, and the two shards would wait
// for each other. Does nothing in a build without CUDA.
void load_kernels();

// The text of a cudaError_t.
const char* cuda_error_text(int code);

// Returns 0 or the code of a cudaError_t. In a build with CUDA it exists for the kernels that a .cu file instantiates.
template <typename Kernel>
int launch_cuda(const Kernel& kernel, const LaunchShape& shape, void* stream, bool early);
#if !defined(MAGISTER_HAVE_CUDA)
template <typename Kernel>
int launch_cuda(const Kernel&, const LaunchShape&, void*, bool) {
  return 1;
}
#endif

// Returns when the kernel is queued. Kernels of one stream run in order. Throws Error(kInternal) if the kernel does not
// start. On the host no kernel starts in a build without MAGISTER_HOST_KERNELS (MAGISTER_TESTS=OFF), since only tests
// need that.
template <typename Kernel>
void launch(const Kernel& kernel, const LaunchShape& shape, const Queue& queue) {
  if (shape.blocks_x == 0 || shape.blocks_y == 0 || shape.blocks_z == 0) return;
  const WatchedLaunch watched(Kernel::kName);
#if defined(MAGISTER_HOST_KERNELS)
  if (queue.on_host()) {
    const auto run = [kernel, shape] {
      bool waited = true;
      run_on_host(shape, [&](HostThread& thread) {
        run_thread(kernel, thread);
        waited = waited && thread.has_waited();
      });
      MAGISTER_CHECK(waited, ExitCode::kInternal,
                     "the kernel {} does not wait for earlier ones (it would read what they have not written yet); "
                     "report this",
                     Kernel::kName);
    };
    if (HostKernels* const recording = host_recording()) {
      recording->emplace_back(run);
    } else {
      run();
    }
    return;
  }
#else
  MAGISTER_CHECK(!queue.on_host(), ExitCode::kInternal,
                 "the kernel {} is to run on the host (this program was built without such kernels, which only tests "
                 "need); report this",
                 Kernel::kName);
#endif
  const int code = launch_cuda(kernel, shape, queue.stream, queue.early);
  MAGISTER_CHECK(
      code == 0, ExitCode::kInternal,
      "the kernel {} does not start on cuda:{}: {} ({} x {} x {} blocks of {} threads with {} bytes of shared memory); "
      "check `magister doctor` and report this",
      Kernel::kName, queue.device, cuda_error_text(code), shape.blocks_x, shape.blocks_y, shape.blocks_z, shape.threads,
      shape.shared_bytes);
}

// Queues work of a library in order with the queue's kernels. `call` starts the work on ATen's current stream, which
// must be the queue's stream. `call` holds its data by value.
template <typename Call>
void call_library(const Call& call, const Queue& queue) {
  HostKernels* const recording = queue.on_host() ? host_recording() : nullptr;
  if (recording != nullptr) {
    recording->emplace_back(call);
  } else {
    call();
  }
}

// Launches a kernel whose launch shape follows from its arguments.
template <typename Kernel>
void start(const Kernel& kernel, const Queue& queue) {
  launch(kernel, kernel.shape(), queue);
}

}  // namespace magister::gpu
