// Sums over a tree of micro-batches are those of one rank, to the bit, on any number of ranks and in any order.
#include "magister/train/gradient_tree.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <new>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "magister/parallel/device_exchange.h"
#include "magister/train/micro_gradient.h"
#include "magister/train/staged_copies.h"

namespace magister {
namespace gradient_tree_test {

// Numbers whose sums round, slightly different in each micro-batch. They repeat after a prime number of places, which
// is no divisor of a bucket or block: forty million sines for each of some hundred gradients would take minutes.
at::Tensor gradient_of(std::uint64_t micro_batch, std::int64_t size) {
  constexpr std::int64_t kPeriod = 65'537;
  const at::Tensor at = at::arange(kPeriod, at::kDouble);
  const at::Tensor some =
      ((at * 0.37 + static_cast<double>(micro_batch) * 1.3).sin() * 1e3 / (1.0 + static_cast<double>(micro_batch % 3)))
          .to(at::kFloat);
  return some.repeat({(size + kPeriod - 1) / kPeriod}).narrow(0, 0, size).clone();
}

// The tree as it is defined.
at::Tensor plain_sum(std::uint64_t begin, std::uint64_t width, std::uint64_t count, std::int64_t size) {
  if (width == 1) return gradient_of(begin, size);
  const at::Tensor left = plain_sum(begin, width / 2, count, size);
  return begin + width / 2 < count ? left + plain_sum(begin + width / 2, width / 2, count, size) : left;
}

// Bucket by bucket, the last one first, as a backward pass has them; or the first one first.
void add(GradientTree& tree, std::uint64_t micro_batch, const at::Tensor& gradient, bool pair = false,
         bool descending = true) {
  const std::size_t count = tree.num_buckets();
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t b = descending ? count - 1 - i : i;
    const FlatRange range = tree.bucket(b);
    tree.add(micro_batch, b, gradient.narrow(0, range.begin, range.size()).clone(), pair);
    tree.move_on();
  }
}

TEST(GradientTree, SumsHaveTheSameBitsOnAnyNumberOfRanks) {
  const Communicator world = Communicator::world();
  for (const std::uint64_t count : {1, 2, 3, 5, 8, 13}) {
    const std::int64_t size = count == 3 ? 2 : 1000;  // 2: some pieces of a bucket are empty
    std::uint64_t width = 1;
    while (width < count) width *= 2;
    const IndexRange own = micro_batches_of(count, world.rank(), world.size());
    for (const auto& [forwards, in_pairs] : {std::pair{true, false}, {false, false}, {true, true}, {false, true}}) {
      GradientTree tree(world, count, size);
      for (std::uint64_t i = 0; i < own.size(); ++i) {
        const std::uint64_t micro_batch = forwards ? own.begin + i : own.end - 1 - i;
        const at::Tensor gradient = gradient_of(micro_batch, size);
        const std::vector<at::Tensor> other = in_pairs ? tree.take_other_half(micro_batch) : std::vector<at::Tensor>();
        add(tree, micro_batch, other.empty() ? gradient : other[0].clone().add_(gradient), !other.empty());
      }
      EXPECT_TRUE(at::equal(tree.finish(), plain_sum(0, width, count, size))) << count << in_pairs;
    }
  }
}

// A gradient of several buckets, the last of which is short and no multiple of blocks or ranks; more buckets than are
// in flight at once. Ranks without a micro-batch take part, too, and ranks reach the sum at different times, with their
// buckets in different orders.
TEST(GradientTree, EveryRankGetsItsPartOfTheSum) {
  const Communicator world = Communicator::world();
  constexpr std::int64_t kSize = 6 * FlatShards::kBucket + 5 * FlatShards::kBlock + 7;
  const FlatShards shards(kSize, world.size());
  for (const std::uint64_t count : {1, 2, 5}) {
    const IndexRange own = micro_batches_of(count, world.rank(), world.size());
    for (const bool fast : {false, true}) {
      GradientTree tree(world, count, kSize, {fast, true});
      for (std::uint64_t i = own.begin; i < own.end; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20 * world.rank()));
        add(tree, i, gradient_of(i, kSize), false, world.rank() % 2 == 0);
      }
      const at::Tensor part = tree.finish();
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
    GradientTree tree(world, count, kSize, {true, false});
    for (std::uint64_t i = own.begin; i < own.end; ++i) add(tree, i, gradient_of(i, kSize));
    at::Tensor expected = at::zeros({kSize}, at::kDouble);
    for (std::uint64_t i = 0; i < count; ++i) expected += gradient_of(i, kSize);
    EXPECT_TRUE(at::allclose(tree.finish().to(at::kDouble), expected, 0, 1e-3)) << count;  // of 1e3 a number
  }
}

TEST(GradientTree, BucketsMeetOnOtherRanks) {
  const Communicator world = Communicator::world();
  constexpr std::int64_t kSize = (25 << 20) / 4 + 5;
  const IndexRange own = micro_batches_of(4, world.rank(), world.size());
  GradientTree tree(world, 4, kSize);
  const at::Tensor some = gradient_of(7, kSize);
  for (std::uint64_t i = own.begin; i < own.end; ++i) add(tree, i, some * static_cast<float>(i + 1));
  const at::Tensor expected = (some + some * 2.0f) + (some * 3.0f + some * 4.0f);
  EXPECT_TRUE(at::equal(tree.finish(), expected));
}

// Micro-batches of several threads, whose buckets come in between each other.
TEST(GradientTree, ThreadsAddAtOnce) {
  const Communicator world = Communicator::world();
  constexpr std::int64_t kSize = 3 * FlatShards::kBucket + 100;
  constexpr std::uint64_t kCount = 11;
  const IndexRange own = micro_batches_of(kCount, world.rank(), world.size());
  GradientTree tree(world, kCount, kSize);
  std::vector<std::thread> threads;
  for (std::uint64_t i = own.begin; i < own.end; ++i)
    threads.emplace_back([&, i] { add(tree, i, gradient_of(i, kSize), false, i % 2 == 0); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(at::equal(tree.finish(), plain_sum(0, 16, kCount, kSize)));
}

// Sums of a device, which the host simulates: they are copied into memory that the next step uses again.
TEST(GradientTree, SumsOfADeviceComeIntoMemoryThatStays) {
  const Communicator world = Communicator::world();
  constexpr std::int64_t kSize = FlatShards::kBucket + 100;
  constexpr std::uint64_t kCount = 5;
  const IndexRange own = micro_batches_of(kCount, world.rank(), world.size());
  ThreadPool pool(2);
  StagedCopies copies(at::Device(at::kCPU), pool);
  const void* memory = nullptr;
  for (int step = 0; step < 3; ++step) {
    GradientTree tree(world, kCount, kSize, {false, false, &copies, true});
    for (std::uint64_t i = own.begin; i < own.end; ++i) add(tree, i, gradient_of(i, kSize));
    const at::Tensor sum = tree.finish();
    EXPECT_TRUE(at::equal(sum, plain_sum(0, 8, kCount, kSize)));
    EXPECT_TRUE(memory == nullptr || sum.data_ptr() == memory);
    memory = sum.data_ptr();
  }
  if (world.size() > 1) return;
  GradientTree tree(world, 1, kSize, {false, false, &copies, true, true});
  const at::Tensor only = gradient_of(0, kSize);
  tree.add(0, 0, only);
  EXPECT_EQ(tree.finish().data_ptr(), only.data_ptr());
}

// From device to device, in the order of the host's tree, which is the oracle. Ranks have one micro-batch, several
// nodes of the tree, or none; pieces are empty, and buckets come in either order and at different times.
TEST(GradientTree, DevicesAddInTheHostsOrder) {
  const Communicator world = Communicator::world();
  const auto exchange = make_device_exchange(world, gpu::Queue{});
  ThreadPool pool(1);
  StagedCopies copies(at::Device(at::kCPU), pool);
  for (const std::uint64_t count : {1, 2, 3, 5, 6, 8, 13}) {
    const IndexRange own = micro_batches_of(count, world.rank(), world.size());
    for (const std::int64_t size : {std::int64_t{2}, std::int64_t{9 * FlatShards::kBlock + 5},
                                    2 * FlatShards::kBucket + 5 * FlatShards::kBlock + 7}) {
      if (size > FlatShards::kBucket && count != 3) continue;
      const FlatShards shards(size, world.size());
      for (const auto& [divided, fast] : {std::pair{false, false}, {true, false}, {true, true}}) {
        const auto sum = [&](DeviceExchange* between) {
          GradientTree tree(world, count, size, {fast, divided, &copies, true, world.size() == 1, between});
          for (std::uint64_t i = own.begin; i < own.end; ++i) {
            const bool pairs = divided && !fast;
            const at::Tensor gradient = gradient_of(i, size);
            const std::vector<at::Tensor> other = pairs ? tree.take_other_half(i) : std::vector<at::Tensor>();
            at::Tensor whole = gradient;
            if (!other.empty()) whole = at::cat(other).add_(gradient);
            std::this_thread::sleep_for(std::chrono::milliseconds(2 * world.rank()));
            add(tree, i, whole, !other.empty(), world.rank() % 2 == 0);
          }
          return tree.finish();
        };
        const at::Tensor found = sum(exchange.get());
        std::uint64_t width = 1;
        while (width < count) width *= 2;
        const at::Tensor whole = plain_sum(0, width, count, size);
        const at::Tensor expected = divided ? part_of(shards, world.rank(), whole) : whole;
        EXPECT_TRUE(fast ? at::allclose(found, expected, 0, 1e-3) : at::equal(found, expected))
            << count << " " << size << " " << divided << fast;
        if (!fast || world.size() == 1) continue;
        EXPECT_TRUE(at::equal(found, sum(nullptr))) << count << " " << size;
        // Another order has other bits, so the comparison sees it.
        const bool differs = world.size() == 2 && count == 13 && size > 2;
        EXPECT_TRUE(!differs || !at::equal(found, expected));
      }
    }
  }
  exchange->close();
}

// An exchange that has no memory at the first bucket. What the rank has added up by then is not added again.
class ShortOfMemory final : public DeviceExchange {
 public:
  explicit ShortOfMemory(DeviceExchange& of) : of_(of) {}
  gpu::Queue queue() const override { return of_.queue(); }
  void follow_default() override {
    if (std::exchange(is_short_, false)) throw std::bad_alloc();
    of_.follow_default();
  }
  void pass(std::span<const DeviceMessage> messages) override { of_.pass(messages); }
  std::uint64_t mark() override { return of_.mark(); }
  bool reached(std::uint64_t mark) override { return of_.reached(mark); }
  void wait() override { of_.wait(); }
  bool was_short() const { return !is_short_; }

 private:
  DeviceExchange& of_;
  bool is_short_ = true;
};

TEST(GradientTree, FastSumsOfDevicesGoOnAfterALackOfMemory) {
  const Communicator world = Communicator::world();
  if (world.size() == 1) GTEST_SKIP() << "one rank has nothing to exchange";
  const auto exchange = make_device_exchange(world, gpu::Queue{});
  ThreadPool pool(1);
  StagedCopies copies(at::Device(at::kCPU), pool);
  constexpr std::int64_t kSize = FlatShards::kBucket + 9 * FlatShards::kBlock + 5;
  constexpr std::uint64_t kCount = 7;  // some ranks have several nodes of the tree
  const IndexRange own = micro_batches_of(kCount, world.rank(), world.size());
  const auto sum = [&](DeviceExchange& between) {
    GradientTree tree(world, kCount, kSize, {true, true, &copies, true, false, &between});
    for (std::uint64_t i = own.begin; i < own.end; ++i) add(tree, i, gradient_of(i, kSize));
    return tree.finish();
  };
  const at::Tensor expected = sum(*exchange);
  ShortOfMemory once(*exchange);
  EXPECT_TRUE(at::equal(sum(once), expected));
  EXPECT_TRUE(once.was_short());
  exchange->close();
}

// Parameters that cross the borders of buckets, and one that is not contiguous; missing numbers at a finish() are not
// another's. The second micro-batch, whose gradient is added to that of the first, finds no memory for a part and puts
// its parameter again: on two ranks, where sums have buckets, between the two parts of one.
TEST(MicroGradient, GivesBucketsAsTheyAreComplete) {
  struct Layout : FlatLayout {
    Layout() {
      for (const std::int64_t rows : {700, 1, 4000, 3000}) add(std::to_string(rows), {rows, 2049});
    }
  };
  ::setenv("MAGISTER_FAIL_POINT", "train.gradient.part@8:enospc", 1);
  const Communicator world = Communicator::world();
  const Layout layout;
  const std::uint64_t count = 4;
  int without_memory = 0;
  const auto gradient_at = [&](std::uint64_t micro_batch, std::size_t parameter) {
    const TrainParameter& row = layout.all()[parameter];
    return gradient_of(micro_batch + parameter, row.count).view({row.shape[1], row.shape[0]}).t();
  };
  GradientTree tree(world, count, layout.flat_size());
  const IndexRange own = micro_batches_of(count, world.rank(), world.size());
  for (std::uint64_t m = own.begin; m < own.end; ++m) {
    MicroGradient gradient(layout, tree, m);
    for (std::size_t p = layout.all().size(); p-- > 0;) {
      try {
        gradient.put(p, gradient_at(m, p));
      } catch (const c10::OutOfMemoryError&) {
        ++without_memory;
        gradient.put(p, gradient_at(m, p));
      }
    }
    gradient.put(0, gradient_at(m, 0));  // again: not added
    gradient.finish();
  }
  EXPECT_EQ(without_memory, own.size() >= 2 ? 1 : 0);
  const at::Tensor sum = tree.finish();
  for (std::size_t p = 0; p < layout.all().size(); ++p) {
    const auto of = [&](std::uint64_t m) { return gradient_at(m, p); };
    EXPECT_TRUE(at::equal(layout.view(sum, p), (of(0) + of(1)) + (of(2) + of(3)))) << p;
  }
  EXPECT_EQ(sum.sub(0).narrow(0, 700 * 2049, layout.all()[1].offset - 700 * 2049).abs().sum().item<float>(), 0.0f);
}

// For a GPU's gradients it is read after all have been put. It follows the test that sets a fail point, because fail
// points are read once.
TEST(MicroGradient, SaysWhetherAllIsFinite) {
  struct Layout : FlatLayout {
    Layout() {
      add("first", {3, 5});
      add("second", {7});
    }
  };
  const Communicator alone;
  const Layout layout;
  ThreadPool pool(1);
  StagedCopies copies(at::Device(at::kCPU), pool);
  for (StagedCopies* const of_gpu : {static_cast<StagedCopies*>(nullptr), &copies}) {
    for (const std::size_t bad : {0, 1, 2}) {
      GradientTree tree(alone, 1, layout.flat_size());
      MicroGradient gradient(layout, tree, 0, at::Device(at::kCPU), of_gpu);
      for (const std::size_t i : {1, 0}) {
        at::Tensor values = at::ones(layout.all()[i].shape, at::kFloat);
        if (i == bad) values.flatten()[2] = i == 0 ? std::nanf("") : INFINITY;
        try {
          gradient.put(i, values);
        } catch (const c10::OutOfMemoryError&) {  // on a rank that had fewer parts above, here once
          gradient.put(i, values);
        }
      }
      EXPECT_EQ(gradient.finite(), bad == 2);
    }
  }
}

}  // namespace gradient_tree_test
}  // namespace magister
