// Divides heads, MLP columns and vocabulary among shards; the first shards get the larger parts. Boundaries are
// multiples of 32 columns (blocks of quantised weights) and of 64 vocabulary rows (tiles of the head) if the model is
// large enough.
// Source: none, plain arithmetic. Tests check that parts are disjoint, cover everything and keep groups of heads whole.
#include "magister/model/partition.h"

#include <algorithm>

#include "magister/core/error.h"

namespace magister {
namespace {

// Part `index` of `count` even parts of [0, total). If it does not divide, the first parts are larger by one.
IndexRange even_part(std::uint64_t total, std::uint64_t index, std::uint64_t count) {
  const std::uint64_t base = total / count, larger = total % count;
  const std::uint64_t begin = index * base + std::min(index, larger);
  return {begin, begin + base + (index < larger ? 1 : 0)};
}

// The same in steps of `unit`, which is halved until every part gets a step. The last step may be shorter.
IndexRange stepped_part(std::uint64_t total, std::uint64_t index, std::uint64_t count, std::uint64_t unit) {
  while (unit > 1 && (total + unit - 1) / unit < count) unit /= 2;
  const IndexRange steps = even_part((total + unit - 1) / unit, index, count);
  return {steps.begin * unit, std::min(steps.end * unit, total)};
}

// MLP columns; in a model with experts, the smallest of the numbers of plain MLPs, experts and shared experts.
std::int64_t mlp_columns(const ModelConfig& config) {
  if (config.num_experts == 0) return config.intermediate_size;
  return std::min({config.intermediate_size, config.moe_intermediate_size, config.expert_columns(config.num_experts)});
}

// Heads of the kind of attention that has the fewest.
std::int64_t fewest_heads(const ModelConfig& config) {
  return config.delta ? std::min(config.num_attention_heads, config.delta->value_heads) : config.num_attention_heads;
}

std::int64_t largest_tp_size(const ModelConfig& config) {
  return std::min({fewest_heads(config), mlp_columns(config), config.vocab_size});
}

// Part `index` of `count` of H query heads and the K KV heads that they use.
struct Heads {
  IndexRange heads, kv_heads;
};
Heads part_of_heads(std::int64_t heads, std::int64_t kv_heads, std::uint64_t index, std::uint64_t count) {
  const auto H = static_cast<std::uint64_t>(heads), K = static_cast<std::uint64_t>(kv_heads), heads_per_kv = H / K;
  if (count <= K) {
    const IndexRange keys = even_part(K, index, count);
    return {{keys.begin * heads_per_kv, keys.end * heads_per_kv}, keys};
  }
  const IndexRange part = even_part(H, index, count);
  return {part, {part.begin / heads_per_kv, (part.end - 1) / heads_per_kv + 1}};
}

}  // namespace

Partition partition_for(const ModelConfig& config, int tp_rank, int tp_size) {
  MAGISTER_CHECK(tp_size >= 1 && tp_size <= largest_tp_size(config), ExitCode::kConfig,
                 "a model of {} attention heads, {} MLP columns and {} vocabulary rows cannot be divided over {} "
                 "devices (each needs at least one of each); use groups of 1 to {} devices",
                 fewest_heads(config), mlp_columns(config), config.vocab_size, tp_size, largest_tp_size(config));
  MAGISTER_CHECK(tp_size == 1 || !config.encoder, ExitCode::kConfig,
                 "a model of the family {} cannot be divided over {} devices (encoders are not sharded); use groups "
                 "of 1 device, and more ranks for more speed",
                 config.family, tp_size);
  MAGISTER_ASSERT(tp_rank >= 0 && tp_rank < tp_size);
  const auto index = static_cast<std::uint64_t>(tp_rank), count = static_cast<std::uint64_t>(tp_size);
  Partition part;
  const Heads of_heads = part_of_heads(config.num_attention_heads, config.num_key_value_heads, index, count);
  part.heads = of_heads.heads;
  part.kv_heads = of_heads.kv_heads;
  if (config.delta) {
    const Heads of_delta = part_of_heads(config.delta->value_heads, config.delta->key_heads, index, count);
    part.delta_heads = of_delta.heads;
    part.delta_keys = of_delta.kv_heads;
  }
  part.mlp = stepped_part(static_cast<std::uint64_t>(config.intermediate_size), index, count, 32);
  if (config.num_experts > 0)
    part.expert = stepped_part(static_cast<std::uint64_t>(config.moe_intermediate_size), index, count, 32);
  if (config.num_shared_experts > 0)
    part.shared_expert =
        stepped_part(static_cast<std::uint64_t>(config.expert_columns(config.num_experts)), index, count, 32);
  part.vocab = stepped_part(static_cast<std::uint64_t>(config.vocab_size), index, count, 64);
  return part;
}

Partition layer_partition(const ModelConfig& config, Partition partition, std::int64_t layer) {
  const auto widths = static_cast<std::uint64_t>(config.mlp_widths_of(layer));
  partition.mlp = {partition.mlp.begin * widths, partition.mlp.end * widths};
  if (config.is_linear(layer)) {
    partition.heads = partition.delta_heads;
    partition.kv_heads = partition.delta_keys;
    return partition;
  }
  if (config.kv_heads_of(layer) == config.num_key_value_heads) return partition;
  const auto heads_per_kv = static_cast<std::uint64_t>(config.num_attention_heads / config.kv_heads_of(layer));
  partition.kv_heads = {partition.heads.begin / heads_per_kv, (partition.heads.end - 1) / heads_per_kv + 1};
  return partition;
}

std::vector<int> working_tp_sizes(const ModelConfig& config, int limit) {
  std::vector<int> sizes;
  const std::int64_t most = config.encoder ? 1 : largest_tp_size(config);
  for (int size = 1; size <= limit && size <= most; ++size) sizes.push_back(size);
  return sizes;
}

}  // namespace magister
