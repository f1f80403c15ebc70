// The copies of a GPU in a build without CUDA: it throws.
#include "device/copy_queue_cuda.h"
#include "magister/core/error.h"

namespace magister {

std::unique_ptr<CopyQueue> make_cuda_copy_queue(int device) {
  fail(ExitCode::kConfig,
       "copies from cuda:{} in a build without CUDA (GPUs cannot be used); build with MAGISTER_CUDA=ON or set "
       "layout.devices: cpu",
       device);
}

}  // namespace magister
