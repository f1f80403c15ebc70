// Before a pass of several shards on GPUs, each shard allocates memory of the planned size and frees it. The allocator
// keeps that memory and uses it for the pass.
#include "magister/model/pass_memory.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <initializer_list>
#include <string>

#include "magister/core/error.h"
#include "magister/device/gpu.h"
#include "magister/device/upload.h"
#include "magister/model/layer_shape.h"
#include "magister/model/partition.h"
#include "model/gpu/prompt_experts.h"
#include "model/gpu/prompt_rule.h"

namespace magister {
namespace {

// Numbers of the experts' weights that one launch multiplies at a time where they are codes, or 8-bit floats.
std::uint64_t most_plain_experts(const ModelConfig& config, const Partition& part, at::ScalarType factors) {
  const gpu::ExpertWidths widths = gpu::expert_widths(config, part);
  return gpu::groups_prompts(widths, factors) ? gpu::PromptExperts::most_slice_numbers(widths) : 0;
}

// Numbers of the largest weight that is plain at a time: a product of a layer, or of one expert, or of several experts.
std::uint64_t most_plain_weights(const ModelConfig& config, const Partition& part, at::ScalarType factors) {
  std::uint64_t qkv = 0, mlp = 0;
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const LayerShape shape = shape_of(config, part, layer);
    qkv = std::max(qkv, static_cast<std::uint64_t>(shape.qkv_features()));
    mlp = std::max(mlp, static_cast<std::uint64_t>(shape.mlp));
  }
  const std::uint64_t gate_up = std::max<std::uint64_t>((config.gated_mlp ? 2 : 1) * mlp,
                                                        2 * std::max(part.expert.size(), part.shared_expert.size()));
  return std::max(std::max(qkv, gate_up) * static_cast<std::uint64_t>(config.hidden_size),
                  most_plain_experts(config, part, factors));
}

// Bytes of logits between head and sampling: the rows of the pass, the same together with rows kept for shared prompts,
// and the rows that are sampled. With several shards, the own part exists twice while it is sent to the others.
std::uint64_t sampled_row_bytes(const ModelConfig& config, const Partition& part, std::int64_t rows, int tp_size) {
  const std::uint64_t own = tp_size == 1 ? 0 : 2 * (part.vocab.size() + 1);
  return static_cast<std::uint64_t>(rows) * (3 * static_cast<std::uint64_t>(config.vocab_size) + own) * sizeof(float);
}

}  // namespace

GpuPassSize GpuPassSize::with(const GpuPassSize& other) const {
  return {std::max(tokens, other.tokens), std::max(sequence_tokens, other.sequence_tokens),
          std::max(tile_rows, other.tile_rows), std::max(sampled_rows, other.sampled_rows)};
}

MemoryParts gpu_pass_parts(const ModelConfig& config, const Partition& partition, int tp_size, const GpuPassSize& size,
                           bool codes, at::ScalarType factors) {
  const at::ScalarType dtype = activation_dtype(factors);
  MemoryParts parts = {
      {"activations", gpu_activation_bytes(config, partition, size.tokens, size.sequence_tokens, factors)}};
  if (size.tile_rows > 0 && !config.encoder)
    parts.emplace_back("a tile of logits",
                       static_cast<std::uint64_t>(size.tile_rows) * partition.vocab.size() * sizeof(float));
  const std::uint64_t plain = codes                           ? most_plain_weights(config, partition, factors)
                              : factors == at::kFloat8_e4m3fn ? most_plain_experts(config, partition, factors)
                                                              : 0;
  if (plain > 0) parts.emplace_back("a plain product", plain * c10::elementSize(dtype));
  if (size.sequence_tokens > 0)
    parts.emplace_back("gathered keys",
                       gpu_gathered_bytes(config, partition, size.tokens, size.sequence_tokens, dtype));
  if (size.sampled_rows > 0)
    parts.emplace_back("sampled rows", sampled_row_bytes(config, partition, size.sampled_rows, tp_size));
  return parts;
}

bool PassMemory::fits_here(const Size& size) const {
  const gpu::Queue* const queue = model_.queue();
  if (!has_room_ && (queue == nullptr || queue->on_host())) return true;
  const int tp_size = model_.group().tp_size();
  std::uint64_t bytes = 0;
  for (const auto& part : gpu_pass_parts(
           model_.config(), partition_for(model_.config(), model_.group().tp_rank(), tp_size), tp_size, size,
           model_.has_codes(),
           model_.multiplies_fp8() ? at::kFloat8_e4m3fn : model_.lm_head().projection.weight_NK.scalar_type()))
    bytes += part.second;
  if (has_room_) return has_room_(bytes);
  try {
    const at::Tensor place =
        at::empty({static_cast<std::int64_t>(bytes)}, at::TensorOptions().dtype(at::kByte).device(device_of(*queue)));
    return place.defined();
  } catch (const c10::OutOfMemoryError&) {
    return false;
  }
}

// Asks for the largest sizes so far together with this one, with some tokens in advance. If there is no memory for
// that, asks for this pass alone.
bool PassMemory::fits_everywhere(const Size& size) {
  if (known_.holds(size)) return true;
  const bool refused = refuses_();
  Size all = known_.with(size);
  all.sequence_tokens = (all.sequence_tokens + kTokensAhead - 1) / kTokensAhead * kTokensAhead;
  ProcessGroup& group = model_.group();
  for (const Size& asked : {all, size}) {
    if (group.least_number(!refused && fits_here(asked) ? 1 : 0) == 0) continue;
    if (asked == all) known_ = all;
    return true;
  }
  return false;
}

std::string PassMemory::run(const Size& size, const std::function<void()>& pass) {
  if (model_.group().tp_size() > 1) {
    if (!fits_everywhere(size)) return "a shard of the group has none";
    pass();
    return "";
  }
  try {
    TORCH_CHECK_WITH(OutOfMemoryError, !refuses_(), "a test asked for it");
    pass();
    return "";
  } catch (const c10::OutOfMemoryError& error) {
    return printable(error.msg(), 300);
  }
}

}  // namespace magister
