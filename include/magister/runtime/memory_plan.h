// The memory that models need on each device of a group: for `plan`, for the choice of a group's size, and, from a
// config.json alone, for the choice of machines.
// In bytes: weights are exact (as WeightSource loads them), work memory is an upper bound.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "magister/core/memory_parts.h"
#include "magister/experiment/config.h"
#include "magister/model/cpu/quantize.h"
#include "magister/model/model_config.h"
#include "magister/runtime/pass_shape.h"

namespace magister {

// A GPU's memory differs from a CPU's: keys, values and activations have activation_dtype(), the head works on 1,024
// rows of f32 logits at a time, passes of many rows dequantize the codes of one product at a time, and decoding passes
// and NCCL have buffers of their own.
struct GpuDemand {
  at::ScalarType dtype = at::kBFloat16;  // of the weights, from resolve_gpu_dtype()
  bool quantized = false;
  bool fp8_cache = false;   // pages of keys and values in 8-bit floats
  bool throughput = false;  // decoding passes widen codes in a buffer of their own
};

// The share of a GPU's free memory that a model may use; the rest is for the CUDA context's growth, cuBLAS's workspace
// and fragmentation.
constexpr double kUsableGpuShare = 0.92;

// Pages of the smallest cache with which a task runs: the longest text, and a page that a running text copies. 0: no
// cache.
std::uint64_t pages_of_one_text(const PassShape& pass);

// Memory of the largest shard by part. shard_bytes: the weights of a shard; cache_pages: pages of keys and values, 0
// without a cache; gpu: set for a model on GPUs.
using ShardBytes = std::function<std::uint64_t(int tp_rank)>;
MemoryParts device_memory(const ModelConfig& config, const ShardBytes& shard_bytes, int tp_size, const PassShape& pass,
                          std::uint64_t cache_pages, const std::optional<GpuDemand>& gpu = {});
// Removes the parts that the models of a group share (NCCL's buffers, sums in kernels). For a second model.
MemoryParts without_shared(MemoryParts parts);

// A model as `plan` names it.
struct PlannedModel {
  const ModelConfig& config;
  at::ScalarType dtype;
  QuantScheme quantization;
  std::string layers{};  // description of quantised layers if the file tells more than the scheme
};

// "llama, 134.5 M parameters, f32".
std::string describe_planned_model(const PlannedModel& model);

// A model on the same devices as the task's own model.
struct SecondModel {
  std::string name;  // "value model"
  ModelSection section;
  PassShape pass{};
  std::uint64_t pages = 0;         // of the smallest cache with which it works
  bool may_stand_on_cpus = false;  // it may run on CPUs if its architecture is not computed on GPUs
};

// One of the models that a group holds; the first is the task's own.
struct GroupModel {
  std::string name{};  // empty: the task's own
  ModelConfig config{};
  at::ScalarType dtype = at::kFloat;
  QuantScheme scheme{};
  std::function<std::uint64_t(int tp_rank, int tp_size)> weight_bytes{};
  PassShape pass{};
  std::uint64_t pages = 0;
  std::optional<GpuDemand> gpu{};

  // Shards in a group of tp_size devices. A second model that is an encoder is whole on each of them.
  int shards_of(int tp_size) const { return config.encoder && !name.empty() ? 1 : tp_size; }
};
// Memory of each device of a group that holds all models, by part: the largest shard of each model, and once the parts
// that they share.
MemoryParts group_memory(const std::vector<GroupModel>& models, int tp_size);
// The group sizes, up to `most`, with which all models can be divided.
std::vector<int> group_sizes(const std::vector<GroupModel>& models, int most);

}  // namespace magister
