// WeightStore: weights of models that stay in memory from task to task, so that tasks of one model read its file once. What is found is the
// same memory, so the same bits. A store belongs to a process and outlives its models.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace magister {

// A shard of a model: CpuWeights, EncoderWeights or gpu::GpuWeights, as the name of the shard says.
struct StoredWeights {
  std::shared_ptr<const void> weights;
  std::uint64_t num_bytes = 0;
  int device = -1;  // of a GPU, by its CUDA runtime index; else the host's memory
};

class WeightStore {
 public:
  // Frees the weights of every checkpoint but these: before others come, for there may be no memory for all. {}: of all.
  void keep_only(std::vector<std::string> checkpoints);
  // Whether anything of the checkpoint is there.
  bool has(const std::string& checkpoint) const;
  // What keep_only({}) would give back of the host's memory, or of this GPU's, as far as no model uses it.
  std::uint64_t host_bytes() const { return bytes_on(-1); }
  std::uint64_t gpu_bytes(int device) const { return bytes_on(device); }

  // The shard that `load` makes, or made before; of a checkpoint that is not kept it is the caller's alone. checkpoint: what decides the
  // numbers, so the file's content and the type; shard: what else decides the memory. From any thread: several may load different shards
  // at once, and who asks for one that another loads waits for it, so `load` holds no collective where two groups have one shard. heartbeat:
  // called every 20 ms of such a wait; may throw. What `load` throws all get that wait for it.
  std::shared_ptr<const void> get(const std::string& checkpoint, const std::string& shard,
                                  const std::function<StoredWeights()>& load,
                                  const std::function<void()>& heartbeat = {});

 private:
  std::uint64_t bytes_on(int device) const;
  bool keeps(const std::string& checkpoint) const;

  mutable std::mutex mutex_;
  std::vector<std::string> kept_;
  std::map<std::pair<std::string, std::string>, StoredWeights> shards_;  // by checkpoint and shard
  std::map<std::pair<std::string, std::string>, std::shared_future<StoredWeights>> loading_;
};

// Where a model may look before it reads its file; store null: nowhere.
struct KeptWeights {
  WeightStore* store = nullptr;
  std::string checkpoint;

  bool is_cached() const { return store != nullptr && store->has(checkpoint); }
  // As WeightStore::get(). Weights: what `shard` says.
  template <typename Weights>
  std::shared_ptr<const Weights> get(const std::string& shard, const std::function<StoredWeights()>& load,
                                     const std::function<void()>& heartbeat = {}) const {
    return std::static_pointer_cast<const Weights>(store != nullptr ? store->get(checkpoint, shard, load, heartbeat)
                                                                    : load().weights);
  }
};

}  // namespace magister
