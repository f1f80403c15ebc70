// Plain loops over fixed blocks of the flat tensors. Their inner loops have a fixed length: at -O2 GCC 12 makes vectors
// of no others.
#include "magister/train/optimizer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "magister/parallel/gathered.h"
#include "magister/parallel/thread_pool.h"
#include "magister/train/fresh_zeros.h"
#include "train/optimizer_parts.h"

namespace magister {
namespace {

constexpr std::int64_t kAtOnce = 16 * FlatShards::kBlock;  // numbers per tile of work

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

OptimizerState new_optimizer_state(std::int64_t part_size, at::Device device) {
  const auto zeros = [&] {
    return device.is_cpu() ? fresh_zeros(part_size)
                           : at::zeros({part_size}, at::TensorOptions(at::kFloat).device(device));
  };
  return {zeros(), zeros(), 0};
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

// Pieces begin at multiples of a block, and all but the last of a flat tensor end at one, so a rank's part is whole
// blocks.
std::vector<double> block_squares(const at::Tensor& part_of_gradient, ThreadPool& pool) {
  constexpr std::int64_t kBlock = FlatShards::kBlock;
  const float* const g = part_of_gradient.const_data_ptr<float>();
  const std::int64_t size = part_of_gradient.numel();
  std::vector<double> own(static_cast<std::size_t>((size + kBlock - 1) / kBlock));
  pool.run((size + kAtOnce - 1) / kAtOnce, [&](std::int64_t tile, int) {
    for (std::int64_t at = tile * kAtOnce; at < std::min(size, (tile + 1) * kAtOnce); at += kBlock)
      own[static_cast<std::size_t>(at / kBlock)] = squares(g + at, std::min(kBlock, size - at));
  });
  return own;
}

double norm_of_blocks(const Communicator& ranks, const FlatShards& shards, const std::vector<double>& own) {
  const auto blocks_of = [&](std::int64_t bucket, int rank) {
    return (shards.piece(bucket, rank).size() + FlatShards::kBlock - 1) / FlatShards::kBlock;
  };
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

// GCC 12 makes vectors of the inner loop only if it knows that nothing overlaps, which it forgets where it inlines the
// function.
[[gnu::noinline]] void update_block(AdamwRates rates, float keep, const float* __restrict gradient,
                                    float* __restrict weight, float* __restrict mean, float* __restrict square,
                                    std::int64_t count) {
  constexpr std::int64_t kLanes = 8;
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane)
      adamw_number(rates, keep, gradient[i + lane], weight[i + lane], mean[i + lane], square[i + lane]);
  }
  for (; i < count; ++i) adamw_number(rates, keep, gradient[i], weight[i], mean[i], square[i]);
}

}  // namespace

AdamwRates adamw_rates(const OptimizerOptions& options, double lr, double scale, std::uint64_t number) {
  const auto n = static_cast<double>(number);
  const double correction1 = 1.0 - std::pow(options.beta1, n), correction2 = 1.0 - std::pow(options.beta2, n);
  return {static_cast<float>(1.0 - lr * options.weight_decay),
          static_cast<float>(1.0 - options.beta1),
          static_cast<float>(options.beta2),
          static_cast<float>(1.0 - options.beta2),
          static_cast<float>(lr / correction1),
          static_cast<float>(std::sqrt(correction2)),
          static_cast<float>(options.epsilon),
          static_cast<float>(scale)};
}

std::vector<AdamwTile> adamw_tiles(const FlatLayout& layout, const FlatShards& shards, int rank, std::int64_t bucket,
                                   std::int64_t most) {
  std::vector<AdamwTile> tiles;
  const FlatRange piece = shards.piece(bucket, rank);
  const std::vector<TrainParameter>& all = layout.all();
  auto first = std::partition_point(all.begin(), all.end(), [&](const TrainParameter& parameter) {
    return parameter.offset + parameter.count <= piece.begin;
  });
  for (; first != all.end() && first->offset < piece.end; ++first) {
    const std::int64_t begin = std::max(piece.begin, first->offset),
                       end = std::min(piece.end, first->offset + first->count);
    for (std::int64_t at = begin; at < end; at += most) {
      tiles.push_back({at, shards.offset(bucket, rank) + at - piece.begin,
                       static_cast<std::int32_t>(std::min(most, end - at)), first->decays ? 1 : 0});
    }
  }
  return tiles;
}

std::vector<ClippedWeights> clipped_weights(const FlatLayout& layout, const FlatShards& shards, int rank) {
  std::vector<ClippedWeights> clipped;
  for (const TrainParameter& parameter : layout.all()) {
    for (std::int64_t bucket = 0; parameter.limit > 0 && bucket < shards.num_buckets(); ++bucket) {
      const FlatRange piece = shards.piece(bucket, rank);
      const FlatRange range{std::max(piece.begin, parameter.offset),
                            std::min(piece.end, parameter.offset + parameter.count)};
      if (range.begin < range.end) clipped.push_back({range, parameter.limit});
    }
  }
  return clipped;
}

void clip(const std::vector<ClippedWeights>& clipped, at::Tensor& flat_weights) {
  for (const ClippedWeights& one : clipped)
    flat_weights.narrow(0, one.range.begin, one.range.size()).clamp_(-one.limit, one.limit);
}

struct AdamwUpdate::Work {
  AdamwRates rates;
  std::vector<AdamwTile> tiles;  // in the order of the part
};

AdamwUpdate::AdamwUpdate(const FlatLayout& layout, const FlatShards& shards, int rank, const OptimizerOptions& options,
                         double lr, double scale, at::Tensor& flat_weights, OptimizerState& state, ThreadPool& pool)
    : work_(std::make_unique<Work>()), flat_weights_(flat_weights), state_(state), pool_(pool) {
  work_->rates = adamw_rates(options, lr, scale, ++state.updates);
  clip(clipped_weights(layout, shards, rank), flat_weights);
  for (std::int64_t bucket = 0; bucket < shards.num_buckets(); ++bucket) {
    const std::vector<AdamwTile> more = adamw_tiles(layout, shards, rank, bucket, kAtOnce);
    work_->tiles.insert(work_->tiles.end(), more.begin(), more.end());
  }
}

AdamwUpdate::~AdamwUpdate() = default;

void AdamwUpdate::run(std::int64_t begin, const at::Tensor& gradient) const {
  const std::vector<AdamwTile>& all = work_->tiles;
  const std::int64_t end = begin + gradient.numel();
  const auto first = std::partition_point(all.begin(), all.end(),
                                          [&](const AdamwTile& tile) { return tile.part + tile.count <= begin; });
  const auto last = std::partition_point(first, all.end(), [&](const AdamwTile& tile) { return tile.part < end; });
  const float* const numbers = gradient.const_data_ptr<float>();
  float *const weights = flat_weights_.data_ptr<float>(), *const means = state_.mean.data_ptr<float>(),
               *const squares = state_.square.data_ptr<float>();
  pool_.run(last - first, [&](std::int64_t index, int) {
    const AdamwTile& tile = first[index];
    const std::int64_t from = std::max(begin, tile.part), skipped = from - tile.part;  // a border may divide a tile
    update_block(work_->rates, tile.decays != 0 ? work_->rates.keep : 1.0f, numbers + from - begin,
                 weights + tile.flat + skipped, means + from, squares + from,
                 std::min(end, tile.part + tile.count) - from);
  });
}

void adamw_update(const FlatLayout& layout, const FlatShards& shards, int rank, const OptimizerOptions& options,
                  double lr, double scale, const at::Tensor& part_of_gradient, at::Tensor& flat_weights,
                  OptimizerState& state, ThreadPool& pool) {
  AdamwUpdate(layout, shards, rank, options, lr, scale, flat_weights, state, pool).run(0, part_of_gradient);
}

}  // namespace magister
