// See training_bytes.h.
#include "magister/train/training_bytes.h"

#include <algorithm>
#include <bit>

#include "magister/train/head_loss.h"
#include "magister/train/trunk.h"

namespace magister {
namespace {

std::uint64_t weight_bytes(const ModelConfig& config) { return 4 * config.num_parameters(); }

// Micro-batches' gradients at once: one a thread, and what waits on each level of the tree.
std::uint64_t gradients_at_once(const TrainingShape& shape) {
  return std::min(shape.own_micro_batches, static_cast<std::uint64_t>(shape.num_threads) +
                                               static_cast<std::uint64_t>(std::bit_width(shape.own_micro_batches)));
}

std::uint64_t table_bytes(const ModelConfig& config) {
  return 4 * static_cast<std::uint64_t>(config.vocab_size) * static_cast<std::uint64_t>(config.hidden_size);
}

}  // namespace

TrainingBytes host_training_bytes(const ModelConfig& config, const TrainingShape& shape) {
  const std::uint64_t weights = weight_bytes(config), factors = 4 * static_cast<std::uint64_t>(shape.adapter);
  const std::uint64_t learnt = factors > 0 ? factors : weights;
  const auto sharing = static_cast<std::uint64_t>(shape.sharing);
  const std::uint64_t part = (learnt + sharing - 1) / sharing;
  const auto holders = static_cast<std::uint64_t>(shape.with_weights);
  // Beside them the rank's part of the sum over ranks.
  return {{"weights", (weights + holders - 1) / holders + factors},
          {"gradients", gradients_at_once(shape) * learnt + part},
          {"optimizer", 2 * part}};
}

TrainingBytes training_bytes(const ModelConfig& config, const TrainingShape& shape) {
  TrainingBytes parts = host_training_bytes(config, shape);
  // The head's gradient and the embeddings' are gathered over a micro-batch before they are added, one after the other.
  const std::uint64_t table = shape.adapter > 0 ? 0 : table_bytes(config);
  const std::uint64_t pass = trunk_bytes(config, shape.tokens, shape.longest, shape.recompute) +
                             head_loss_bytes(shape.tokens, config.hidden_size, config.vocab_size, 1) + table;
  parts.emplace_back("activations",
                     std::min(shape.own_micro_batches, static_cast<std::uint64_t>(shape.num_threads)) * pass);
  return parts;
}

TrainingBytes gpu_training_bytes(const ModelConfig& config, const TrainingShape& shape) {
  const std::uint64_t factors = 4 * static_cast<std::uint64_t>(shape.adapter), weights = weight_bytes(config);
  const auto layers = static_cast<std::uint64_t>(std::max<std::int64_t>(config.num_hidden_layers, 1));
  // The head's and the embeddings', which are gathered over a micro-batch, and what a product adds to the head's; those of a layer with its
  // operands in bf16.
  const std::uint64_t passing =
      (shape.adapter > 0 ? factors / layers : (shape.bf16 ? 3 : 2) * table_bytes(config)) + 2 * weights / layers;
  const std::uint64_t sums = shape.sums_on_gpu ? gradients_at_once(shape) * (factors > 0 ? factors : weights) : 0;
  // What an operation makes beside what is kept: a formula's signs are tensors of their own here.
  const auto T = static_cast<std::uint64_t>(shape.tokens);
  const auto widest = static_cast<std::uint64_t>(
      std::max(config.intermediate_size, config.num_attention_heads * config.head_dim) + config.hidden_size);
  const std::uint64_t head = gpu_head_loss_bytes(shape.tokens, config.hidden_size, config.vocab_size) +
                             (shape.bf16 ? table_bytes(config) / 2 : 0);
  return {
      {"weights", weights + factors},
      {"gradients", sums + passing},
      {"activations", trunk_bytes(config, shape.tokens, shape.longest, shape.recompute) + 4 * 6 * T * widest + head}};
}

}  // namespace magister
