// The optimizer's kernels have the bits of the host's loops, and its steps are those of torch's own operations; large
// tensors pass through the staging buffers completely.
#include "magister/train/gpu_optimizer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "magister/device/host_block.h"
#include "magister/parallel/thread_pool.h"

namespace magister {
namespace gpu_optimizer_test {

// Parameters over the border of a bucket and of pieces, some that do not decay, of lengths that four does not divide.
class SomeLayout : public FlatLayout {
 public:
  SomeLayout() {
    add("first", {1000, 4097});
    add("norm", {37});
    add("second", {2600, 1001}, {}, 0.7);  // clipped before an update
    add("bias", {4099});
  }
};

at::Tensor flat_of(const FlatLayout& layout, double step, double scale) {
  at::Tensor flat = at::zeros({layout.flat_size()}, at::kFloat);
  for (std::size_t i = 0; i < layout.all().size(); ++i) {
    at::Tensor view = layout.view(flat, i);
    view.copy_(((at::arange(view.numel(), at::kDouble) * (step + 0.1 * static_cast<double>(i))).sin() * scale)
                   .to(at::kFloat)
                   .view(view.sizes()));
  }
  return flat;
}

TEST(GpuOptimizer, HasTheBitsOfTheHostsOnAnyNumberOfRanks) {
  ThreadPool pool(2);
  const SomeLayout layout;
  OptimizerOptions options;
  options.weight_decay = 0.1;
  StagedCopies copies(at::Device(at::kCPU), pool);
  for (const int ranks : {1, 3}) {
    const FlatShards shards(layout.flat_size(), ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      const GpuOptimizer optimizer(layout, shards, rank, gpu::Queue{});
      at::Tensor weights = flat_of(layout, 0.3, 1.0), there = weights.clone(), from_host = weights.clone(),
                 by_bucket = weights.clone(), pieces = weights.clone();
      OptimizerState of_host = new_optimizer_state(shards.size(rank)),
                     of_there = new_optimizer_state(shards.size(rank)),
                     of_both = new_optimizer_state(shards.size(rank)),
                     of_buckets = new_optimizer_state(shards.size(rank)),
                     of_pieces = new_optimizer_state(shards.size(rank));
      for (int step = 0; step < 3; ++step) {
        const at::Tensor part = part_of(shards, rank, flat_of(layout, 0.7 + step, step == 1 ? 1e-4 : 2.0));
        gpu::set_host_order(step == 0 ? gpu::HostOrder::kDescending : gpu::HostOrder::kAscending);
        EXPECT_EQ(block_squares(part, gpu::Queue{}), block_squares(part, pool));
        const double lr = 1e-3 / (1 + step), scale = step == 2 ? 1.0 : 0.37;
        adamw_update(layout, shards, rank, options, lr, scale, part, weights, of_host, pool);
        optimizer.update(options, lr, scale, part, there, of_there);
        optimizer.update_from_host(options, lr, scale, part, from_host, of_both, copies);
        // On the host in pieces that divide parameters, in another order.
        AdamwUpdate in_pieces(layout, shards, rank, options, lr, scale, pieces, of_pieces, pool);
        for (std::int64_t end = part.numel(), size = 12'345; end > 0; end -= std::min(end, size), size *= 7)
          in_pieces.run(std::max<std::int64_t>(0, end - size),
                        part.narrow(0, std::max<std::int64_t>(0, end - size), std::min(end, size)));
        // A bucket's piece is final when its turn has come.
        optimizer.update(options, lr, scale, part, by_bucket, of_buckets, [&](std::int64_t bucket) {
          const FlatRange piece = shards.piece(bucket, rank);
          EXPECT_TRUE(
              at::equal(by_bucket.narrow(0, piece.begin, piece.size()), weights.narrow(0, piece.begin, piece.size())))
              << ranks << rank << step << bucket;
        });
        for (const auto& [found, state] : {std::pair(there, of_there), std::pair(from_host, of_both),
                                           std::pair(by_bucket, of_buckets), std::pair(pieces, of_pieces)}) {
          EXPECT_TRUE(at::equal(found, weights)) << ranks << rank << step;
          EXPECT_TRUE(at::equal(state.mean, of_host.mean) && at::equal(state.square, of_host.square));
          EXPECT_EQ(state.updates, of_host.updates);
        }
      }
    }
  }
}

// torch.optim.AdamW's operations, a tensor at a time (_single_tensor_adamw), in f64.
TEST(GpuOptimizer, StepsAreThoseOfTorch) {
  const SomeLayout layout;
  const FlatShards shards(layout.flat_size(), 1);
  const GpuOptimizer optimizer(layout, shards, 0, gpu::Queue{});
  OptimizerOptions options;
  options.weight_decay = 0.1;
  at::Tensor weights = flat_of(layout, 0.3, 1.0);
  OptimizerState state = new_optimizer_state(shards.size(0));
  at::Tensor plain = weights.to(at::kDouble), mean = at::zeros_like(plain), square = at::zeros_like(plain);
  constexpr double kRate = 1e-2, kScale = 0.25;
  for (int step = 1; step <= 3; ++step) {
    const at::Tensor gradient = flat_of(layout, 0.7 + step, 3.0);
    optimizer.update(options, kRate, kScale, gradient, weights, state);
    for (std::size_t i = 0; i < layout.all().size(); ++i) {
      const at::Tensor g = layout.view(gradient, i).to(at::kDouble) * kScale;
      at::Tensor w = layout.view(plain, i), m = layout.view(mean, i), s = layout.view(square, i);
      if (const double limit = layout.all()[i].limit; limit > 0) w.clamp_(-limit, limit);
      if (layout.all()[i].decays) w.mul_(1 - kRate * options.weight_decay);
      m.lerp_(g, 1 - options.beta1);
      s.mul_(options.beta2).addcmul_(g, g, 1 - options.beta2);
      const at::Tensor divisor = (s.sqrt() / std::sqrt(1 - std::pow(options.beta2, step))).add_(options.epsilon);
      w.addcdiv_(m, divisor, -kRate / (1 - std::pow(options.beta1, step)));
    }
    EXPECT_LT((weights.to(at::kDouble) - plain).abs().max().item<double>(), 3e-7) << step;
  }
  // Padding belongs to no parameter.
  const TrainParameter& norm = layout.all()[1];
  EXPECT_EQ(weights.narrow(0, norm.offset + norm.count, 48 - norm.count).abs().max().item<float>(), 0);
}

TEST(StagedCopies, BringEveryNumberAndKeepMemory) {
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    StagedCopies copies(at::Device(at::kCPU), pool);
    for (const std::int64_t size : {0, 1, 4 << 20, 13'000'001}) {
      const at::Tensor from = at::arange(size, at::kFloat), here = copies.copy_of(from);
      EXPECT_TRUE(at::equal(here, from)) << size;
      const at::Tensor there = at::zeros({size}, at::kFloat);
      copies.to_device(here, there);
      EXPECT_TRUE(at::equal(there, from)) << size;
      // What is made of a piece goes back while the next one arrives.
      std::int64_t next = 0;
      copies.each_piece(from, [&](const at::Tensor& piece, std::int64_t begin) {
        EXPECT_EQ(begin, next);
        next += piece.numel();
        copies.to_device(piece + 1, there.narrow(0, begin, piece.numel()));
      });
      EXPECT_EQ(next, size);
      EXPECT_TRUE(at::equal(there, from + 1)) << size;
    }
    const void* first = nullptr;
    for (int step = 0; step < 3; ++step) {
      const at::Tensor one = copies.take(1000), other = copies.take(1000);
      EXPECT_NE(one.data_ptr(), other.data_ptr());
      EXPECT_TRUE(first == nullptr || first == one.data_ptr());
      first = one.data_ptr();
    }
  }
}

}  // namespace gpu_optimizer_test
}  // namespace magister
