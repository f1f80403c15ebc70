// What models need of each device of a group: for `plan`, for choosing a group's size, and, from a config.json alone, for choosing the machines first.
// Bytes: weights are exact (what WeightSource hands out), work memory is an upper bound.
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

// What a GPU's memory holds beside a CPU's: keys, values and activations stand in activation_dtype(), the head works on 1,024 rows of f32 logits
// at a time, codes are made plain, a product at a time, for passes of many rows, and decoding passes and NCCL have places of their own.
struct GpuDemand {
  at::ScalarType dtype = at::kBFloat16;  // of the weights, as resolve_gpu_dtype() says
  bool quantized = false;
};

// The share of a GPU's free memory that a model may use: the rest is for the CUDA context's growth, cuBLAS's workspace and fragmentation.
constexpr double kUsableGpuShare = 0.92;

// Pages of the smallest cache that a task runs with: the longest text, and a page that a text in flight copies. 0 without a cache.
std::uint64_t pages_of_one_text(const PassShape& pass);

// The largest shard's memory by part; shard_bytes: the weights of a shard; cache_pages: pages of keys and values, 0 without a
// cache; gpu: of a model on GPUs.
using ShardBytes = std::function<std::uint64_t(int tp_rank)>;
MemoryParts device_memory(const ModelConfig& config, const ShardBytes& shard_bytes, int tp_size, const PassShape& pass,
                          std::uint64_t cache_pages, const std::optional<GpuDemand>& gpu = {});
// Without what the models of a group have together: NCCL's buffers. For a second model.
MemoryParts without_shared(MemoryParts parts);

// A model as `plan` names it.
struct PlannedModel {
  const ModelConfig& config;
  at::ScalarType dtype;
  QuantScheme quantization;
  std::string layers{};  // words for quantised layers where a file tells more than the scheme
};

// "llama, 134.5 M parameters, f32".
std::string describe_planned_model(const PlannedModel& model);

// A model that stands beside a task's own on the same devices.
struct SecondModel {
  std::string name;  // "value model"
  ModelSection section;
  PassShape pass{};
  std::uint64_t pages = 0;         // of the smallest cache that it works with
  bool may_stand_on_cpus = false;  // where GPUs do not compute it
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
};
// Memory of each device of a group that holds them all, itemised: the largest shard of each model, and what they share once.
MemoryParts group_memory(const std::vector<GroupModel>& models, int tp_size);
// The sizes of groups, up to `most`, that divide all of them.
std::vector<int> group_sizes(const std::vector<GroupModel>& models, int most);

}  // namespace magister
