// See training_bytes.h.
#include "magister/train/training_bytes.h"

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "magister/train/flat_shards.h"
#include "magister/train/head_loss.h"
#include "magister/train/trunk.h"

namespace magister {
namespace {

std::uint64_t weight_bytes(const ModelConfig& config) { return 4 * config.num_parameters(); }

// Bytes of what has gradients and moments.
std::uint64_t learnt_bytes(const ModelConfig& config, const TrainingShape& shape) {
  const std::uint64_t factors = 4 * static_cast<std::uint64_t>(shape.adapter);
  return factors > 0 ? factors : weight_bytes(config);
}

// Micro-batches' gradients that exist at once for one thread, also if its sums leave when they are another rank's: one
// waits on each level of the tree where half of a pair is there, and the second of a pair is added to the first.
std::uint64_t gradients_in_turn(std::uint64_t own_micro_batches) {
  std::uint64_t most = 0;
  for (std::uint64_t done = 0; done < std::min<std::uint64_t>(own_micro_batches, 4096); ++done)
    most = std::max(most, static_cast<std::uint64_t>(std::popcount(done)) + (done % 2 == 0 ? 1 : 0));
  return own_micro_batches > 4096 ? static_cast<std::uint64_t>(std::bit_width(own_micro_batches)) : most;
}

// On the host: one per thread, and those that wait on each level of the tree.
std::uint64_t gradients_at_once(const TrainingShape& shape) {
  if (shape.num_threads == 1 && shape.ranks == 1) return gradients_in_turn(shape.own_micro_batches);
  return std::min(shape.own_micro_batches, static_cast<std::uint64_t>(shape.num_threads) +
                                               static_cast<std::uint64_t>(std::bit_width(shape.own_micro_batches)));
}

// The same where a node stays if its other half is another rank's, for the worst place of the rank's micro-batches.
std::uint64_t gradients_kept(std::uint64_t count) {
  if (count > 256) return 2 * static_cast<std::uint64_t>(std::bit_width(count));
  using Node = std::pair<int, std::uint64_t>;  // level and number, as in train/sum_schedule.h
  std::uint64_t most = 0;
  for (std::uint64_t begin = 0; begin < std::bit_ceil(count); ++begin) {
    std::vector<Node> waiting;
    const auto is_own = [&](const Node& node) {
      return node.second << node.first >= begin && (node.second + 1) << node.first <= begin + count;
    };
    for (std::uint64_t number = begin; number < begin + count; ++number) {
      const bool is_second = number % 2 == 1 && !waiting.empty() && waiting.back() == Node{0, number - 1};
      most = std::max(most, waiting.size() + (is_second ? 0 : 1));
      Node node{0, number};
      for (Node parent{1, number / 2}; !waiting.empty() && node.second % 2 == 1 && is_own(parent);
           parent = {parent.first + 1, parent.second / 2}) {
        waiting.pop_back();
        node = parent;
      }
      waiting.push_back(node);
    }
  }
  return most;
}

// On the host of a GPU that adds up its own micro-batches: what is left afterwards.
std::uint64_t gradients_left(const TrainingShape& shape) {
  if (shape.gpus_exchange) return 0;
  if (shape.ranks == 1) return 0;  // they come piece by piece
  const auto levels = static_cast<std::uint64_t>(std::bit_width(shape.own_micro_batches));
  return std::min(shape.own_micro_batches, std::max<std::uint64_t>(1, 2 * std::max<std::uint64_t>(levels, 1) - 2));
}

std::uint64_t table_bytes(const ModelConfig& config) {
  const std::int64_t of_vectors = config.per_layer_width > 0 ? config.per_layer_vocab : 0;
  return 4 * static_cast<std::uint64_t>(config.table_rows() * config.hidden_size +
                                        of_vectors * config.num_hidden_layers * config.per_layer_width);
}

}  // namespace

std::uint64_t state_bytes(const ModelConfig& config, const TrainingShape& shape) {
  return 3 * learnt_bytes(config, shape);
}

MemoryParts host_training_bytes(const ModelConfig& config, const TrainingShape& shape) {
  const std::uint64_t weights = weight_bytes(config), factors = 4 * static_cast<std::uint64_t>(shape.adapter);
  const std::uint64_t learnt = learnt_bytes(config, shape);
  const auto sharing = static_cast<std::uint64_t>(shape.sharing);
  const std::uint64_t part = (learnt + sharing - 1) / sharing;
  const auto holders = static_cast<std::uint64_t>(shape.with_weights);
  MemoryParts parts = {{"weights", (weights + holders - 1) / holders + factors}};
  // Plus the rank's part of the sum over ranks.
  const std::uint64_t summed = shape.sums_on_gpu ? gradients_left(shape) : gradients_at_once(shape);
  const std::uint64_t gradients = summed * learnt + (shape.ranks > 1 && !shape.gpus_exchange ? part : 0);
  if (gradients > 0) parts.emplace_back("gradients", gradients);
  if (!shape.optimizer_on_gpu) parts.emplace_back("optimizer", 2 * part);
  const std::uint64_t copied = shape.writes_states                           ? state_bytes(config, shape)
                               : shape.sharing > 1 && shape.optimizer_on_gpu ? 2 * part
                                                                             : 0;
  if (shape.copies_states && copied > 0) parts.emplace_back("copy of a state", copied);
  return parts;
}

MemoryParts training_bytes(const ModelConfig& config, const TrainingShape& shape) {
  MemoryParts parts = host_training_bytes(config, shape);
  // The gradients of the head and of the embeddings are gathered over a micro-batch before they are added, one after
  // the other.
  const std::uint64_t table = shape.adapter > 0 ? 0 : table_bytes(config);
  const std::uint64_t pass =
      trunk_bytes(config, shape.tokens, shape.longest, {shape.recompute, shape.bf16, shape.adapter > 0}) +
      head_loss_bytes(shape.tokens, config.hidden_size, config.vocab_size, 1) + table;
  parts.emplace_back("activations",
                     std::min(shape.own_micro_batches, static_cast<std::uint64_t>(shape.num_threads)) * pass);
  return parts;
}

MemoryParts gpu_training_bytes(const ModelConfig& config, const TrainingShape& shape) {
  const std::uint64_t factors = 4 * static_cast<std::uint64_t>(shape.adapter), weights = weight_bytes(config);
  const auto layers = static_cast<std::uint64_t>(std::max<std::int64_t>(config.num_hidden_layers, 1));
  // The gradients of the head and of the embeddings, gathered over a micro-batch; those of a layer, with its operands
  // in bf16.
  const std::uint64_t passing =
      (shape.adapter > 0 ? factors / layers : (config.tie_word_embeddings ? 1 : 2) * table_bytes(config)) +
      2 * weights / layers;
  const std::uint64_t learnt = learnt_bytes(config, shape);
  const auto sharing = static_cast<std::uint64_t>(shape.sharing);
  const std::uint64_t part = (learnt + sharing - 1) / sharing;
  std::uint64_t sums = shape.sums_on_gpu ? gradients_in_turn(shape.own_micro_batches) * learnt : 0;
  // The sum over ranks, and two buckets at most that arrive.
  if (shape.gpus_exchange)
    sums = gradients_kept(shape.own_micro_batches) * learnt + part +
           2 * std::min(learnt, static_cast<std::uint64_t>(4 * FlatShards::kBucket));
  const std::uint64_t passes = gpu_trunk_bytes(config, shape.tokens, shape.longest, shape.recompute, shape.bf16);
  const std::uint64_t head = gpu_head_loss_bytes(shape.tokens, config.hidden_size, config.vocab_size) +
                             (shape.bf16 ? table_bytes(config) / 2 : 0);
  MemoryParts parts = {{"weights", weights + factors}, {"gradients", sums + passing}, {"activations", passes + head}};
  if (shape.optimizer_on_gpu) parts.emplace_back("optimizer", 2 * part);
  return parts;
}

}  // namespace magister
