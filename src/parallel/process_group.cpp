// What all backends share.
#include "magister/parallel/process_group.h"

#include <ATen/ATen.h>

#include <utility>

#include "magister/device/gpu.h"
#include "magister/parallel/peer_sums.h"

namespace magister {

ShardAbandoned::ShardAbandoned()
    : Error(ExitCode::kInternal,
            "another shard of this rank failed (its part of the sum is missing); see its message") {}

std::int64_t ProcessGroup::broadcast_number(std::int64_t number, int root) {
  at::Tensor tensor = at::tensor({number}, at::kLong).to(device());
  broadcast(tensor, root);
  return tensor.item<std::int64_t>();
}

void ProcessGroup::wait_for(const GpuEvent& event) {
  event.wait();
  check_peer_sums();
}

PeerSums* ProcessGroup::peer_sums(const gpu::Queue& queue) {
  if (!std::exchange(asked_for_peer_sums_, true)) peer_sums_ = PeerSums::make(*this, queue);
  return peer_sums_.get();
}

void ProcessGroup::check_peer_sums() const {
  if (peer_sums_ != nullptr) peer_sums_->check();
}

}  // namespace magister
