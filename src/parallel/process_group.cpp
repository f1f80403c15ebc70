// Functions that all backends share.
#include "magister/parallel/process_group.h"

#include <ATen/ATen.h>

#include <algorithm>
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

std::vector<std::vector<std::int64_t>> ProcessGroup::gather_numbers(const std::vector<std::int64_t>& mine) {
  const auto count = static_cast<std::int64_t>(mine.size());
  const at::Tensor own = at::tensor(mine, at::kLong).view({1, count}).to(device()),
                   all = (tp_size() == 1 ? own : all_gather(own)).cpu();
  std::vector<std::vector<std::int64_t>> numbers;
  for (std::int64_t s = 0; s < tp_size(); ++s) {
    const auto* const first = all.const_data_ptr<std::int64_t>() + s * count;
    numbers.emplace_back(first, first + count);
  }
  return numbers;
}

std::int64_t ProcessGroup::least_number(std::int64_t number) {
  for (const auto& theirs : gather_numbers({number})) number = std::min(number, theirs.front());
  return number;
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
