// An optimizer that is divided over the ranks does what a whole one does, to the bit; parts come together as they were.
#include "magister/train/flat_shards.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "magister/parallel/thread_pool.h"
#include "magister/train/host_weights.h"
#include "magister/train/optimizer.h"
#include "train/optimizer_parts.h"

namespace magister {
namespace flat_shards_test {

// Parameters over the border of a bucket and of pieces, some that do not decay, with padding between them.
class SomeLayout : public FlatLayout {
 public:
  SomeLayout() {
    add("first", {1000, 4097});
    add("norm", {37});
    add("second", {2600, 1001});
    add("bias", {4099});
  }
};

at::Tensor spread(std::int64_t size, double step, double scale) {
  return ((at::arange(size, at::kDouble) * step).sin() * scale).to(at::kFloat);
}

// The padding stays 0.
at::Tensor flat_of(const FlatLayout& layout, double step, double scale) {
  at::Tensor flat = at::zeros({layout.flat_size()}, at::kFloat);
  for (std::size_t i = 0; i < layout.all().size(); ++i) {
    at::Tensor view = layout.view(flat, i);
    view.copy_(spread(view.numel(), step + 0.1 * static_cast<double>(i), scale).view(view.sizes()));
  }
  return flat;
}

TEST(FlatShards, PiecesCoverEveryNumberOnce) {
  for (const std::int64_t size : {std::int64_t{1}, std::int64_t{4097}, 3 * FlatShards::kBucket + 12345}) {
    for (const int ranks : {1, 2, 3, 7, 64, 2000}) {
      const FlatShards shards(size, ranks);
      std::int64_t at = 0, sum = 0;
      for (std::int64_t bucket = 0; bucket < shards.num_buckets(); ++bucket) {
        for (int rank = 0; rank < ranks; ++rank) {
          const FlatRange piece = shards.piece(bucket, rank);
          ASSERT_EQ(piece.begin, at);
          ASSERT_TRUE(piece.size() == 0 || piece.begin % FlatShards::kBlock == 0);
          at = piece.end;
        }
      }
      for (int rank = 0; rank < ranks; ++rank) {
        sum += shards.size(rank);
        EXPECT_LE(shards.size(rank), size / ranks + shards.num_buckets() * FlatShards::kBlock);
      }
      EXPECT_EQ(at, size);
      EXPECT_EQ(sum, size);
    }
  }
}

TEST(FlatShards, ADividedOptimizerHasTheBitsOfAWholeOne) {
  const Communicator world = Communicator::world(), alone;
  ThreadPool pool(2);
  const SomeLayout layout;
  const FlatShards whole(layout.flat_size(), 1), shards(layout.flat_size(), world.size());
  OptimizerOptions options;
  options.weight_decay = 0.1;
  at::Tensor weights = flat_of(layout, 0.3, 1.0), divided = weights.clone();
  OptimizerState state = new_optimizer_state(whole.size(0)), own = new_optimizer_state(shards.size(world.rank()));
  for (int step = 0; step < 3; ++step) {
    const at::Tensor gradient = flat_of(layout, 0.7 + step, step == 1 ? 1e-4 : 2.0);
    const at::Tensor part = part_of(shards, world.rank(), gradient);
    const double norm = norm_of_blocks(alone, whole, block_squares(gradient, pool));
    EXPECT_EQ(norm_of_blocks(world, shards, block_squares(part, pool)), norm);
    EXPECT_NEAR(norm, gradient.to(at::kDouble).norm().item<double>(), 1e-9 * norm);
    adamw_update(layout, whole, 0, options, 1e-3, 0.5, gradient, weights, state, pool);
    adamw_update(layout, shards, world.rank(), options, 1e-3, 0.5, part, divided, own, pool);
    gather_pieces(world, shards, divided);
    EXPECT_TRUE(at::equal(divided, weights)) << step;
  }
  for (const TrainParameter& parameter : layout.all()) {
    const FlatRange range{parameter.offset, parameter.offset + parameter.count};
    const at::Tensor into = parameter.offset == 0 && world.rank() == 0 ? at::empty({range.size()}) : at::Tensor();
    const at::Tensor found = range_on_first(world, shards, own.square, range, {}, into);
    EXPECT_TRUE(!into.defined() || found.is_same(into));
    ASSERT_EQ(found.defined(), world.rank() == 0);
    if (found.defined()) {
      EXPECT_TRUE(at::equal(found, state.square.narrow(0, range.begin, range.size())));
    }
  }
  EXPECT_TRUE(at::equal(part_of(shards, world.rank(), state.mean), own.mean));
}

// Several numbers at a time and the rest of a tile, against the formula of one number.
TEST(FlatShards, AdamwOfManyNumbersHasTheBitsOfOneNumber) {
  const SomeLayout layout;
  const FlatShards whole(layout.flat_size(), 1);
  ThreadPool pool(2);
  OptimizerOptions options;
  options.weight_decay = 0.1;
  at::Tensor weights = flat_of(layout, 0.3, 1.0), plain = weights.clone();
  OptimizerState state = new_optimizer_state(whole.size(0)), of_plain = new_optimizer_state(whole.size(0));
  for (std::uint64_t step = 1; step <= 3; ++step) {
    const at::Tensor gradient = flat_of(layout, 0.7 + static_cast<double>(step), step == 2 ? 1e-20 : 2.0);
    adamw_update(layout, whole, 0, options, 1e-3, 0.5, gradient, weights, state, pool);
    const AdamwRates rates = adamw_rates(options, 1e-3, 0.5, step);
    for (const TrainParameter& parameter : layout.all()) {
      for (std::int64_t i = parameter.offset; i < parameter.offset + parameter.count; ++i) {
        adamw_number(rates, parameter.decays ? rates.keep : 1.0f, gradient.const_data_ptr<float>()[i],
                     plain.data_ptr<float>()[i], of_plain.mean.data_ptr<float>()[i],
                     of_plain.square.data_ptr<float>()[i]);
      }
    }
    EXPECT_TRUE(at::equal(weights, plain)) << step;
    EXPECT_TRUE(at::equal(state.mean, of_plain.mean)) << step;
    EXPECT_TRUE(at::equal(state.square, of_plain.square)) << step;
  }
}

// Ranks as hosts of one, two and all: each changes its pieces of its host's copy.
TEST(HostWeights, EveryHostHasWhatTheRanksOfAllHaveMade) {
  const Communicator world = Communicator::world();
  const std::int64_t size = 2 * FlatShards::kBucket + 12345;
  const FlatShards shards(size, world.size());
  for (const int ranks_a_host : {1, 2, 3, 4}) {
    for (const bool may_share : {true, false}) {
      const Communicator host = world.split(world.rank() / ranks_a_host, world.rank());
      HostWeights weights(world, host, size, may_share);
      EXPECT_EQ(weights.is_shared(), may_share && world.size() > 1);
      EXPECT_EQ(weights.tensor().abs().sum().item<float>(), 0);
      for (int step = 1; step <= 3; ++step) {
        world.barrier();
        const at::Tensor wanted = spread(size, 0.7, step);
        for (std::int64_t bucket = 0; bucket < shards.num_buckets(); ++bucket) {
          const FlatRange own = shards.piece(bucket, world.rank());
          weights.tensor().narrow(0, own.begin, own.size()).copy_(wanted.narrow(0, own.begin, own.size()));
        }
        if (step == 2) {
          for (std::int64_t bucket = 0; bucket < shards.num_buckets(); ++bucket)
            weights.gather(world, host, shards, bucket);
        } else {
          weights.gather(world, host, shards);
        }
        EXPECT_TRUE(at::equal(weights.tensor(), wanted)) << ranks_a_host << " ranks a host, step " << step;
      }
    }
  }
}

}  // namespace flat_shards_test
}  // namespace magister
