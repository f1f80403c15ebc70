// The GPU group in a build without NCCL: refused.
#include "magister/core/error.h"
#include "magister/parallel/communicator.h"
#include "magister/parallel/process_group.h"

namespace magister {

std::unique_ptr<ProcessGroup> make_nccl_process_group(const Communicator&, int device_index, bool) {
  fail(ExitCode::kConfig,
       "a GPU group on cuda:{} in a build without NCCL (GPUs cannot talk); configure with MAGISTER_CUDA=ON, or set "
       "layout.devices: cpu",
       device_index);
}

}  // namespace magister
