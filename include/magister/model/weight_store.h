// WeightStore: model weights that stay in memory from task to task, so that tasks with the same model read its file
// once. They share the same memory, so they have the same bits. A store belongs to one process and outlives its models.
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

// The weights of one shard of a model, according to its name: CpuWeights, EncoderWeights, gpu::GpuWeights or
// gpu::GpuEncoderWeights.
struct StoredWeights {
  std::shared_ptr<const void> weights;
  std::uint64_t num_bytes = 0;  // of what ranks have together, this rank's part
  int device = -1;              // CUDA runtime index of a GPU; -1: host memory
  int num_ranks = 1;            // ranks of a host that have these weights together
};

class HostCopy;

class WeightStore {
 public:
  // Frees the weights of all checkpoints but these. It is called before other weights are loaded, because memory may
  // not suffice for both. {}: frees all.
  void keep_only(std::vector<std::string> checkpoints);
  // True if the store holds a shard of this checkpoint.
  bool has(const std::string& checkpoint) const;
  // The least number of ranks that have a shard of this checkpoint together; 1 if the store holds none.
  int ranks_a_copy(const std::string& checkpoint) const;
  // Bytes that keep_only({}) would free on the host, or on this GPU, if no model uses them.
  std::uint64_t host_bytes() const { return bytes_on(-1); }
  std::uint64_t gpu_bytes(int device) const { return bytes_on(device); }

  // Returns the shard from the store, or calls `load` and stores its result. The shard of a checkpoint that is not kept
  // belongs to the caller alone. checkpoint: everything that decides the numbers (file content, dtype); shard:
  // everything else that decides the memory. Any thread may call it. Threads may load different shards at the same
  // time; a thread that asks for a shard that another is loading waits for it, so `load` must not communicate where two
  // groups have the same shard. heartbeat: called every 20 ms while waiting; it may throw. If `load` throws, all
  // threads that wait for it get the exception.
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

// The store in which a model looks for its weights before it reads its file. null: none.
struct KeptWeights {
  WeightStore* store = nullptr;
  std::string checkpoint;
  std::shared_ptr<HostCopy> host_copy{};  // into which the ranks of a host load together; nullptr: each for itself

  bool is_cached() const { return store != nullptr && store->has(checkpoint); }
  // See WeightStore::get(). Weights: the type that belongs to `shard`.
  template <typename Weights>
  std::shared_ptr<const Weights> get(const std::string& shard, const std::function<StoredWeights()>& load,
                                     const std::function<void()>& heartbeat = {}) const {
    return std::static_pointer_cast<const Weights>(store != nullptr ? store->get(checkpoint, shard, load, heartbeat)
                                                                    : load().weights);
  }
};

}  // namespace magister
