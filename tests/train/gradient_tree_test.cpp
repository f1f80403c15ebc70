// Sums over a tree of micro-batches are those of one rank, to the bit, on any number of ranks and in any order.
#include "magister/train/gradient_tree.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <utility>

namespace magister {
namespace {

// Numbers whose sums round, a little different in each micro-batch.
at::Tensor gradient_of(std::uint64_t micro_batch, std::int64_t size) {
  const at::Tensor at = at::arange(size, at::kDouble);
  return ((at * 0.37 + static_cast<double>(micro_batch) * 1.3).sin() * 1e3 /
          (1.0 + static_cast<double>(micro_batch % 3)))
      .to(at::kFloat);
}

// The tree as it is defined.
at::Tensor plain_sum(std::uint64_t begin, std::uint64_t width, std::uint64_t count, std::int64_t size) {
  if (width == 1) return gradient_of(begin, size);
  const at::Tensor left = plain_sum(begin, width / 2, count, size);
  return begin + width / 2 < count ? left + plain_sum(begin + width / 2, width / 2, count, size) : left;
}

TEST(GradientTree, SumsHaveTheSameBitsOnAnyNumberOfRanks) {
  const Communicator world = Communicator::world();
  for (const std::uint64_t count : {1, 2, 3, 5, 8, 13}) {
    const std::int64_t size = count == 3 ? 2 : 1000;  // 2: some pieces of a bucket are empty
    std::uint64_t width = 1;
    while (width < count) width *= 2;
    const IndexRange own = micro_batches_of(count, world.rank(), world.size());
    for (const auto& [forwards, in_pairs] : {std::pair{true, false}, {false, false}, {true, true}, {false, true}}) {
      GradientTree tree(world, count);
      for (std::uint64_t i = 0; i < own.size(); ++i) {
        const std::uint64_t micro_batch = forwards ? own.begin + i : own.end - 1 - i;
        at::Tensor gradient = gradient_of(micro_batch, size);
        const at::Tensor other = in_pairs ? tree.take_other_half(micro_batch) : at::Tensor();
        tree.add(micro_batch, other.defined() ? at::Tensor(other).add_(gradient) : gradient, other.defined());
      }
      EXPECT_TRUE(at::equal(tree.sum(size), plain_sum(0, width, count, size))) << count << in_pairs;
    }
  }
}

// Of a tensor of one bucket and a part of a second one, which does not divide by blocks or ranks; ranks without a micro-batch have a part, too.
TEST(GradientTree, EveryRankGetsItsPartOfTheSum) {
  const Communicator world = Communicator::world();
  constexpr std::int64_t kSize = FlatShards::kBucket + 5 * FlatShards::kBlock + 7;
  const FlatShards shards(kSize, world.size());
  for (const std::uint64_t count : {1, 2, 5}) {
    const IndexRange own = micro_batches_of(count, world.rank(), world.size());
    for (const bool fast : {false, true}) {
      GradientTree tree(world, count, fast);
      for (std::uint64_t i = own.begin; i < own.end; ++i) tree.add(i, gradient_of(i, kSize));
      const at::Tensor part = tree.part_of_sum(shards);
      const at::Tensor expected = part_of(shards, world.rank(), plain_sum(0, count == 5 ? 8 : count, count, kSize));
      EXPECT_TRUE(fast ? at::allclose(part, expected, 0, 1e-3) : at::equal(part, expected)) << count;
    }
  }
}

TEST(GradientTree, FastSumsAreEqualToRounding) {
  const Communicator world = Communicator::world();
  constexpr std::int64_t kSize = 1000;
  for (const std::uint64_t count : {1, 3, 8}) {
    const IndexRange own = micro_batches_of(count, world.rank(), world.size());
    GradientTree tree(world, count, true);
    for (std::uint64_t i = own.begin; i < own.end; ++i) tree.add(i, gradient_of(i, kSize));
    at::Tensor expected = at::zeros({kSize}, at::kDouble);
    for (std::uint64_t i = 0; i < count; ++i) expected += gradient_of(i, kSize);
    EXPECT_TRUE(at::allclose(tree.sum(kSize).to(at::kDouble), expected, 0, 1e-3)) << count;  // of 1e3 a number
  }
}

TEST(GradientTree, BucketsMeetOnOtherRanks) {
  const Communicator world = Communicator::world();
  constexpr std::int64_t kSize = (25 << 20) / 4 + 5;
  const IndexRange own = micro_batches_of(4, world.rank(), world.size());
  GradientTree tree(world, 4);
  const at::Tensor some = gradient_of(7, kSize);
  for (std::uint64_t i = own.begin; i < own.end; ++i) tree.add(i, some * static_cast<float>(i + 1));
  const at::Tensor expected = (some + some * 2.0f) + (some * 3.0f + some * 4.0f);
  EXPECT_TRUE(at::equal(tree.sum(kSize), expected));
}

}  // namespace
}  // namespace magister
