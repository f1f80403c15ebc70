// One checkpoint's shards at a time.
#include "magister/model/weight_store.h"

#include <numeric>

#include "model/cpu/cpu_weights.h"

namespace magister {

void WeightStore::keep_only(const std::string& checkpoint) {
  const std::lock_guard lock(mutex_);
  if (checkpoint != checkpoint_) shards_.clear();
  checkpoint_ = checkpoint;
}

bool WeightStore::has(const std::string& checkpoint) const {
  const std::lock_guard lock(mutex_);
  return checkpoint == checkpoint_ && !shards_.empty();
}

std::uint64_t WeightStore::num_bytes() const {
  const std::lock_guard lock(mutex_);
  return std::accumulate(shards_.begin(), shards_.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const auto& shard) { return sum + shard.second->num_bytes; });
}

std::shared_ptr<const CpuWeights> WeightStore::get(const std::string& checkpoint, const std::string& shard,
                                                   const std::function<CpuWeights()>& load) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = shards_.find(shard);
    if (checkpoint == checkpoint_ && found != shards_.end()) return found->second;
  }
  auto weights = std::make_shared<const CpuWeights>(load());
  const std::lock_guard lock(mutex_);
  if (checkpoint == checkpoint_) shards_[shard] = weights;
  return weights;
}

}  // namespace magister
