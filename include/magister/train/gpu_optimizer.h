// The optimizer of a training whose weights and moments are on its rank's GPU. It has the same bits as adamw_update()
// and block_squares() of train/optimizer.h on the host, so the amount of memory changes no training. Tests run it on
// the host.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "magister/device/launch.h"
#include "magister/train/flat_shards.h"
#include "magister/train/optimizer.h"
#include "magister/train/parameters.h"
#include "magister/train/staged_copies.h"

namespace magister {

// As block_squares() of optimizer.h, for a part on the queue's device. Waits for the device. Local.
std::vector<double> block_squares(const at::Tensor& part_of_gradient, const gpu::Queue& queue);

class GpuOptimizer {
 public:
  // For the rank's part of shards over layout's flat tensor. Its lists of work, 24 bytes per 16,384 numbers, go to the
  // queue's device. Local.
  GpuOptimizer(const FlatLayout& layout, const FlatShards& shards, int rank, const gpu::Queue& queue);

  // As adamw_update(): changes the flat weights and the state's moments on the device, after the work that is queued
  // there. The gradient is on the device too. after_bucket: called when the update of a bucket is queued, for every
  // bucket in order; without it all are one kernel. Local.
  void update(const OptimizerOptions& options, double lr, double scale, const at::Tensor& part_of_gradient,
              at::Tensor& flat_weights, OptimizerState& state,
              const std::function<void(std::int64_t bucket)>& after_bucket = {}) const;
  // The same for a gradient on the host, which is copied bucket by bucket; after_bucket may use `copies`. Returns when
  // the gradient may change. Local.
  void update_from_host(const OptimizerOptions& options, double lr, double scale, const at::Tensor& part_of_gradient,
                        at::Tensor& flat_weights, OptimizerState& state, StagedCopies& copies,
                        const std::function<void(std::int64_t bucket)>& after_bucket = {}) const;

 private:
  void run(const OptimizerOptions& options, double lr, double scale, std::size_t first_tile, std::size_t num_tiles,
           const at::Tensor& gradient, std::int64_t first_number, at::Tensor& flat_weights,
           const OptimizerState& state) const;

  FlatShards shards_;
  int rank_;
  gpu::Queue queue_;
  at::Tensor tiles_;                  // bytes
  std::vector<std::size_t> buckets_;  // first tile of each bucket, then the end
  std::vector<ClippedWeights> clipped_;
};

}  // namespace magister
