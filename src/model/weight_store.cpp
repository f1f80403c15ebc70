// Shards of the few checkpoints that a task uses.
#include "magister/model/weight_store.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

namespace magister {

void WeightStore::keep_only(std::vector<std::string> checkpoints) {
  const std::lock_guard lock(mutex_);
  kept_ = std::move(checkpoints);
  std::erase_if(shards_, [this](const auto& shard) { return !keeps(shard.first.first); });
}

bool WeightStore::keeps(const std::string& checkpoint) const {
  return std::find(kept_.begin(), kept_.end(), checkpoint) != kept_.end();
}

bool WeightStore::has(const std::string& checkpoint) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(shards_.begin(), shards_.end(),
                     [&](const auto& shard) { return shard.first.first == checkpoint; });
}

int WeightStore::ranks_a_copy(const std::string& checkpoint) const {
  const std::lock_guard lock(mutex_);
  int least = 0;
  for (const auto& [name, stored] : shards_) {
    if (name.first == checkpoint) least = least == 0 ? stored.num_ranks : std::min(least, stored.num_ranks);
  }
  return std::max(least, 1);
}

std::uint64_t WeightStore::bytes_on(int device) const {
  const std::lock_guard lock(mutex_);
  std::uint64_t bytes = 0;
  for (const auto& [name, stored] : shards_) bytes += stored.device == device ? stored.num_bytes : 0;
  return bytes;
}

std::shared_ptr<const void> WeightStore::get(const std::string& checkpoint, const std::string& shard,
                                             const std::function<StoredWeights()>& load,
                                             const std::function<void()>& heartbeat) {
  constexpr std::chrono::milliseconds kPause{20};
  const std::pair name(checkpoint, shard);
  std::promise<StoredWeights> promise;
  {
    std::unique_lock lock(mutex_);
    const auto found = shards_.find(name);
    if (found != shards_.end()) return found->second.weights;
    if (!keeps(checkpoint)) {
      lock.unlock();
      return load().weights;
    }
    const auto [loading, is_first] = loading_.try_emplace(name);
    if (!is_first) {
      const std::shared_future<StoredWeights> another = loading->second;
      lock.unlock();
      while (another.wait_for(kPause) != std::future_status::ready) {
        if (heartbeat) heartbeat();
      }
      return another.get().weights;
    }
    loading->second = promise.get_future().share();
  }
  try {
    StoredWeights loaded = load();
    const std::lock_guard lock(mutex_);
    if (keeps(checkpoint)) shards_[name] = loaded;
    loading_.erase(name);
    promise.set_value(loaded);
    return loaded.weights;
  } catch (...) {
    const std::lock_guard lock(mutex_);
    loading_.erase(name);
    promise.set_exception(std::current_exception());
    throw;
  }
}

}  // namespace magister
