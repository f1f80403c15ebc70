// What all backends share.
#include "magister/parallel/process_group.h"

#include <ATen/ATen.h>

#include "magister/device/gpu.h"

namespace magister {

ShardAbandoned::ShardAbandoned()
    : Error(ExitCode::kInternal,
            "another shard of this rank failed (its part of the sum is missing); see its message") {}

std::int64_t ProcessGroup::broadcast_number(std::int64_t number, int root) {
  at::Tensor tensor = at::tensor({number}, at::kLong).to(device());
  broadcast(tensor, root);
  return tensor.item<std::int64_t>();
}

void ProcessGroup::wait_for(const GpuEvent& event) { event.wait(); }

}  // namespace magister
