// WeightStore: weights of models on CPUs that stay in memory from task to task, so that tasks of one model read its file once. What is found is
// the same memory, so the same bits. A store belongs to a process and outlives its models; models on GPUs and encoders are read anew.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace magister {

struct CpuWeights;  // src/model/cpu/cpu_weights.h

class WeightStore {
 public:
  // Frees the weights of every checkpoint but this one: before others come, for there may be no memory for both. "": of all.
  void keep_only(const std::string& checkpoint);
  // Whether anything of the checkpoint is there.
  bool has(const std::string& checkpoint) const;
  // What keep_only("") would give back, as far as no model uses it.
  std::uint64_t num_bytes() const;

  // The shard that `load` makes, or made before. checkpoint: what decides the numbers, so the file's content and the type; shard: what
  // else decides the memory. From any
  // thread; two threads may load different shards at once.
  std::shared_ptr<const CpuWeights> get(const std::string& checkpoint, const std::string& shard,
                                        const std::function<CpuWeights()>& load);

 private:
  mutable std::mutex mutex_;
  std::string checkpoint_;
  std::map<std::string, std::shared_ptr<const CpuWeights>> shards_;  // of that checkpoint
};

// Where a model may look before it reads its file; store null: nowhere.
struct KeptWeights {
  WeightStore* store = nullptr;
  std::string checkpoint;
};

}  // namespace magister
