// What a model needs of each device of a group: for `plan`, and, from a config.json alone, for choosing the machines first.
// Bytes: weights are exact (what WeightSource hands out), work memory is an upper bound.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "magister/model/cpu/quantize.h"
#include "magister/model/model_config.h"
#include "magister/run/experiment_config.h"
#include "magister/run/run_context.h"

namespace magister {

using MemoryParts = std::vector<std::pair<std::string, std::uint64_t>>;

// What a GPU's memory holds beside a CPU's: keys, values and activations stand in activation_dtype(), the head works on 1,024 rows of f32 logits
// at a time, codes are made plain, a product at a time, for passes of many rows, and decoding passes and NCCL have places of their own.
struct GpuDemand {
  at::ScalarType dtype = at::kBFloat16;  // of the weights, as resolve_gpu_dtype() says
  bool quantized = false;
};

// Of a GPU's free memory for the model: the rest is for the CUDA context's growth, cuBLAS's work place and fragments.
constexpr double kUsableGpuShare = 0.92;

// Pages of the smallest cache that a task runs with: the longest text, and a page that a text in flight copies. 0 without a cache.
std::uint64_t pages_of_one_text(const PassShape& pass);

// The largest shard's memory by part; shard_bytes: the weights of a shard; cache_pages: pages of keys and values, 0 without a
// cache; gpu: of a model on GPUs.
using ShardBytes = std::function<std::uint64_t(int tp_rank)>;
MemoryParts device_memory(const ModelConfig& config, const ShardBytes& shard_bytes, int tp_size, const PassShape& pass,
                          std::uint64_t cache_pages, const std::optional<GpuDemand>& gpu = {});
std::uint64_t sum_of(const MemoryParts& parts);

// Fills groups and the model's line of a report whose devices are there.
struct PlannedModel {
  const ModelConfig& config;
  at::ScalarType dtype;
  QuantScheme quantization;
  std::string layers{};  // words for quantised layers where a file tells more than the scheme
};
void plan_devices(PlanReport& report, const PlannedModel& model);

// `plan --config-only`: the text for people. section.path: a folder with config.json, or a config.json. dtype auto counts as
// bf16 here, what checkpoints of that size are stored in. pass_shape: of a task, on a device of these limits. Counted as a run counts it on GPUs,
// or on CPUs where layout.devices says so or the model is not computed on GPUs. device_bytes: memory of one device, 0: unknown, of which a GPU
// gives kUsableGpuShare. Throws Error(kConfig) with the smallest group that fits when the requested one does not, or when none does.
std::string plan_from_config(const ModelSection& section,
                             const std::function<PassShape(const PassLimits& device)>& pass_shape,
                             const LayoutConfig& layout, std::uint64_t device_bytes);

}  // namespace magister
