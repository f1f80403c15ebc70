// Plain loops over fixed blocks of the flat tensors, compiled with -O3: at -O2 this compiler leaves them scalar.
#include "magister/train/optimizer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "magister/parallel/gathered.h"
#include "magister/parallel/thread_pool.h"

namespace magister {
namespace {

constexpr std::int64_t kAtOnce = 16 * FlatShards::kBlock;  // numbers of a tile of work

}  // namespace

double lr_factor(LrSchedule schedule, std::uint64_t step, std::uint64_t warmup_steps, std::uint64_t total_steps) {
  const auto s = static_cast<double>(step), warmup = static_cast<double>(warmup_steps),
             total = static_cast<double>(total_steps);
  if (step < warmup_steps) return s / std::max(1.0, warmup);
  const double rest = std::max(1.0, total - warmup);
  switch (schedule) {
    case LrSchedule::kLinear:
      return std::max(0.0, (total - s) / rest);
    case LrSchedule::kCosine:
      return std::max(0.0, 0.5 * (1.0 + std::cos(std::numbers::pi * (s - warmup) / rest)));
    case LrSchedule::kConstant:
      break;
  }
  return 1.0;
}

OptimizerState new_optimizer_state(std::int64_t part_size) {
  return {at::zeros({part_size}, at::kFloat), at::zeros({part_size}, at::kFloat), 0};
}

namespace {

double squares(const float* x, std::int64_t n) {
  constexpr std::int64_t kLanes = 8;
  double lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane)
      lanes[lane] += static_cast<double>(x[i + lane]) * static_cast<double>(x[i + lane]);
  }
  for (; i < n; ++i) lanes[i % kLanes] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

}  // namespace

// Pieces begin at multiples of a block, so a rank's blocks are those of the flat tensor.
double global_norm(const Communicator& ranks, const FlatShards& shards, const at::Tensor& part_of_gradient,
                   ThreadPool& pool) {
  constexpr std::int64_t kBlock = FlatShards::kBlock;
  const auto blocks_of = [&](std::int64_t bucket, int rank) {
    return (shards.piece(bucket, rank).size() + kBlock - 1) / kBlock;
  };
  std::vector<FlatRange> blocks;  // of the part
  for (std::int64_t bucket = 0; bucket < shards.num_buckets(); ++bucket) {
    const std::int64_t begin = shards.offset(bucket, ranks.rank()),
                       end = begin + shards.piece(bucket, ranks.rank()).size();
    for (std::int64_t at = begin; at < end; at += kBlock) blocks.push_back({at, std::min(end, at + kBlock)});
  }
  const float* const g = part_of_gradient.const_data_ptr<float>();
  std::vector<double> own(blocks.size());
  constexpr std::size_t kBlocksAtOnce = kAtOnce / kBlock;
  pool.run(static_cast<std::int64_t>((blocks.size() + kBlocksAtOnce - 1) / kBlocksAtOnce), [&](std::int64_t tile, int) {
    const std::size_t first = static_cast<std::size_t>(tile) * kBlocksAtOnce;
    for (std::size_t i = first; i < std::min(blocks.size(), first + kBlocksAtOnce); ++i)
      own[i] = squares(g + blocks[i].begin, blocks[i].size());
  });
  const std::vector<double> all = gathered(ranks, own);
  std::vector<std::size_t> next = {0};  // by rank
  for (int rank = 0; rank + 1 < ranks.size(); ++rank) {
    std::size_t count = 0;
    for (std::int64_t bucket = 0; bucket < shards.num_buckets(); ++bucket)
      count += static_cast<std::size_t>(blocks_of(bucket, rank));
    next.push_back(next.back() + count);
  }
  double sum = 0;
  for (std::int64_t bucket = 0; bucket < shards.num_buckets(); ++bucket) {
    for (int rank = 0; rank < ranks.size(); ++rank) {
      for (std::int64_t i = 0; i < blocks_of(bucket, rank); ++i) sum += all[next[static_cast<std::size_t>(rank)]++];
    }
  }
  return std::sqrt(sum);
}

namespace {

struct Update {
  float keep;  // 1 - lr * weight_decay
  float rate1, beta2, rate2, step_size, root_correction, epsilon, scale;
};

void update_block(const Update& u, const float* __restrict gradient, float* __restrict weight, float* __restrict mean,
                  float* __restrict square, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] * u.scale;
    const float w = weight[i] * u.keep;
    mean[i] = mean[i] + u.rate1 * (g - mean[i]);
    square[i] = square[i] * u.beta2 + u.rate2 * g * g;
    weight[i] = w - u.step_size * (mean[i] / (std::sqrt(square[i]) / u.root_correction + u.epsilon));
  }
}

}  // namespace

namespace {

struct Block {
  std::int64_t flat, part, count;  // where it begins in the weights and in the rank's part
  bool decays;
};

// What is the rank's of every parameter, in tiles of work.
std::vector<Block> blocks_of(const FlatLayout& layout, const FlatShards& shards, int rank) {
  std::vector<Block> blocks;
  std::size_t first = 0;
  const std::vector<TrainParameter>& all = layout.all();
  for (std::int64_t bucket = 0; bucket < shards.num_buckets(); ++bucket) {
    const FlatRange piece = shards.piece(bucket, rank);
    while (first < all.size() && all[first].offset + all[first].count <= piece.begin) ++first;
    for (std::size_t i = first; i < all.size() && all[i].offset < piece.end; ++i) {
      const std::int64_t begin = std::max(piece.begin, all[i].offset),
                         end = std::min(piece.end, all[i].offset + all[i].count);
      for (std::int64_t at = begin; at < end; at += kAtOnce) {
        blocks.push_back(
            {at, shards.offset(bucket, rank) + at - piece.begin, std::min(kAtOnce, end - at), all[i].decays});
      }
    }
  }
  return blocks;
}

}  // namespace

void adamw_update(const FlatLayout& layout, const FlatShards& shards, int rank, const OptimizerOptions& options,
                  double lr, double scale, const at::Tensor& part_of_gradient, at::Tensor& flat_weights,
                  OptimizerState& state, ThreadPool& pool) {
  const auto number = static_cast<double>(++state.updates);
  const double correction1 = 1.0 - std::pow(options.beta1, number), correction2 = 1.0 - std::pow(options.beta2, number);
  Update update{1.0f,
                static_cast<float>(1.0 - options.beta1),
                static_cast<float>(options.beta2),
                static_cast<float>(1.0 - options.beta2),
                static_cast<float>(lr / correction1),
                static_cast<float>(std::sqrt(correction2)),
                static_cast<float>(options.epsilon),
                static_cast<float>(scale)};
  const std::vector<Block> blocks = blocks_of(layout, shards, rank);
  const auto keep = static_cast<float>(1.0 - lr * options.weight_decay);
  pool.run(static_cast<std::int64_t>(blocks.size()), [&](std::int64_t index, int) {
    const Block& block = blocks[static_cast<std::size_t>(index)];
    Update own = update;
    if (block.decays) own.keep = keep;
    update_block(own, part_of_gradient.const_data_ptr<float>() + block.part,
                 flat_weights.data_ptr<float>() + block.flat, state.mean.data_ptr<float>() + block.part,
                 state.square.data_ptr<float>() + block.part, block.count);
  });
}

}  // namespace magister
