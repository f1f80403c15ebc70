// See gpu_optimizer.h.
#include "magister/train/gpu_optimizer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "magister/device/upload.h"
#include "train/gpu/optimizer_kernels.h"
#include "train/optimizer_parts.h"

namespace magister {
namespace {

constexpr std::int64_t kMostNumbers = 4 * FlatShards::kBlock;  // per tile

static_assert(gpu::BlockSquares::kBlock == FlatShards::kBlock);
static_assert(sizeof(gpu::Adamw::Tile) == sizeof(AdamwTile));

}  // namespace

std::vector<double> block_squares(const at::Tensor& part_of_gradient, const gpu::Queue& queue) {
  gpu::BlockSquares kernel{part_of_gradient.const_data_ptr<float>(), part_of_gradient.numel(), nullptr};
  const at::Tensor sums = at::empty({kernel.num_blocks()}, part_of_gradient.options().dtype(at::kDouble));
  kernel.sums = sums.data_ptr<double>();
  gpu::start(kernel, queue);
  const at::Tensor here = download(sums);
  const double* const values = here.const_data_ptr<double>();
  return {values, values + here.numel()};
}

GpuOptimizer::GpuOptimizer(const FlatLayout& layout, const FlatShards& shards, int rank, const gpu::Queue& queue)
    : shards_(shards), rank_(rank), queue_(queue), buckets_{0}, clipped_(clipped_weights(layout, shards, rank)) {
  std::vector<AdamwTile> tiles;
  for (std::int64_t bucket = 0; bucket < shards.num_buckets(); ++bucket) {
    const std::vector<AdamwTile> more = adamw_tiles(layout, shards, rank, bucket, kMostNumbers);
    tiles.insert(tiles.end(), more.begin(), more.end());
    buckets_.push_back(tiles.size());
  }
  const auto num_bytes = static_cast<std::int64_t>(tiles.size() * sizeof(AdamwTile));
  const at::Tensor here = at::empty({num_bytes}, at::kByte);
  if (num_bytes > 0) std::memcpy(here.data_ptr(), tiles.data(), static_cast<std::size_t>(num_bytes));
  tiles_ = here.to(device_of(queue));
}

void GpuOptimizer::run(const OptimizerOptions& options, double lr, double scale, std::size_t first_tile,
                       std::size_t num_tiles, const at::Tensor& gradient, std::int64_t first_number,
                       at::Tensor& flat_weights, const OptimizerState& state) const {
  gpu::start(gpu::Adamw{adamw_rates(options, lr, scale, state.updates),
                        reinterpret_cast<const gpu::Adamw::Tile*>(tiles_.const_data_ptr<std::uint8_t>()) + first_tile,
                        static_cast<std::int64_t>(num_tiles), gradient.const_data_ptr<float>(), first_number,
                        flat_weights.data_ptr<float>(), state.mean.data_ptr<float>(), state.square.data_ptr<float>()},
             queue_);
}

void GpuOptimizer::update(const OptimizerOptions& options, double lr, double scale, const at::Tensor& part_of_gradient,
                          at::Tensor& flat_weights, OptimizerState& state,
                          const std::function<void(std::int64_t bucket)>& after_bucket) const {
  ++state.updates;
  clip(clipped_, flat_weights);
  if (!after_bucket) return run(options, lr, scale, 0, buckets_.back(), part_of_gradient, 0, flat_weights, state);
  for (std::int64_t bucket = 0; bucket < shards_.num_buckets(); ++bucket) {
    const auto b = static_cast<std::size_t>(bucket);
    run(options, lr, scale, buckets_[b], buckets_[b + 1] - buckets_[b], part_of_gradient, 0, flat_weights, state);
    after_bucket(bucket);
  }
}

void GpuOptimizer::update_from_host(const OptimizerOptions& options, double lr, double scale,
                                    const at::Tensor& part_of_gradient, at::Tensor& flat_weights, OptimizerState& state,
                                    StagedCopies& copies, const std::function<void(std::int64_t)>& after_bucket) const {
  ++state.updates;
  clip(clipped_, flat_weights);
  // One stream: the next bucket arrives when the one before it has been read.
  const at::Tensor there = at::empty({std::min(part_of_gradient.numel(), FlatShards::kBucket)}, flat_weights.options());
  for (std::int64_t bucket = 0; bucket < shards_.num_buckets(); ++bucket) {
    const auto b = static_cast<std::size_t>(bucket);
    const std::int64_t first = shards_.offset(bucket, rank_), count = shards_.piece(bucket, rank_).size();
    if (count > 0) {
      copies.to_device(part_of_gradient.narrow(0, first, count), there.narrow(0, 0, count));
      run(options, lr, scale, buckets_[b], buckets_[b + 1] - buckets_[b], there, first, flat_weights, state);
    }
    if (after_bucket) after_bucket(bucket);
  }
}

}  // namespace magister
