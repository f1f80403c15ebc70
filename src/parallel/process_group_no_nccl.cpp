// The GPU group in a build without NCCL: it throws.
#include "magister/core/error.h"
#include "magister/parallel/communicator.h"
#include "magister/parallel/process_group.h"

namespace magister {

std::vector<std::unique_ptr<ProcessGroup>> make_nccl_process_groups(const Communicator&,
                                                                    const std::vector<int>& devices, bool) {
  fail(ExitCode::kConfig,
       "a GPU group on cuda:{} in a build without NCCL (GPUs cannot communicate); configure with MAGISTER_CUDA=ON, or "
       "set layout.devices: cpu",
       fmt::join(devices, ", cuda:"));
}

std::unique_ptr<ProcessGroup> make_nccl_process_group(const Communicator& members, int device_index, bool fast) {
  return std::move(make_nccl_process_groups(members, {device_index}, fast).front());
}

}  // namespace magister
