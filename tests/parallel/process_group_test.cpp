// CPU groups: threads, ranks and both mixed give the same bits; a shard that fails releases the others.
#include "magister/parallel/process_group.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>

#include "magister/parallel/communicator.h"

namespace magister {
namespace {

at::Tensor contribution(int shard) {
  const at::Tensor index = at::arange(3 * 1000, at::kDouble);
  return at::sin(index * (shard + 1.37)).to(at::kFloat).view({3, 1000}) * std::pow(10.0, shard % 3);
}

// The sum over 4 shards in shard order: what every layout must give, bit for bit.
at::Tensor expected_sum() {
  at::Tensor sum = contribution(0).clone();
  for (int shard = 1; shard < 4; ++shard) sum += contribution(shard);
  return sum;
}

// Runs body(group) on this rank's shards, 4 in the whole world.
template <typename Body>
void on_four_shards(const Body& body) {
  const auto world = Communicator::world();
  auto groups = make_cpu_process_groups(world, 4 / world.size());
  std::vector<std::thread> threads;
  for (auto& group : groups) threads.emplace_back([&body, group = std::move(group)] { body(*group); });
  for (auto& thread : threads) thread.join();
  world.barrier();
}

TEST(ProcessGroup, SumsInShardOrderWhateverTheLayout) {
  on_four_shards([](ProcessGroup& group) {
    EXPECT_EQ(group.tp_size(), 4);
    for (int round = 0; round < 50; ++round) {
      at::Tensor tensor = contribution(group.tp_rank());
      group.all_reduce_sum(tensor);
      EXPECT_TRUE(at::equal(tensor, expected_sum()));
    }
  });
}

TEST(ProcessGroup, SumsTensorsLongerThanAPiece) {
  on_four_shards([](ProcessGroup& group) {
    at::Tensor tensor = at::full({3'000'000}, group.tp_rank() + 1, at::kFloat);
    group.all_reduce_sum(tensor);
    EXPECT_TRUE((tensor == 10).all().item<bool>());
  });
}

TEST(ProcessGroup, GathersBroadcastsAndScatters) {
  on_four_shards([](ProcessGroup& group) {
    at::Tensor mine = at::full({2, 5}, group.tp_rank(), at::kLong);
    const at::Tensor all = group.all_gather(mine);
    EXPECT_TRUE(at::equal(all.select(1, 0), at::tensor({0, 0, 1, 1, 2, 2, 3, 3}, at::kLong)));
    for (int root = 0; root < 4; ++root) {
      at::Tensor tensor = at::full({7}, group.tp_rank(), at::kInt);
      group.broadcast(tensor, root);
      EXPECT_TRUE((tensor == root).all().item<bool>());
    }
    const at::Tensor part = group.reduce_scatter(at::arange(8, at::kFloat));
    EXPECT_TRUE(at::equal(part, at::tensor({8.0f * group.tp_rank(), 8.0f * group.tp_rank() + 4})));
    group.barrier();
  });
}

TEST(ProcessGroup, RoundsSixteenBitSumsOnce) {
  on_four_shards([](ProcessGroup& group) {
    at::Tensor tensor = contribution(group.tp_rank()).to(at::kBFloat16);
    at::Tensor wide = contribution(0).to(at::kBFloat16).to(at::kFloat);
    for (int shard = 1; shard < 4; ++shard) wide += contribution(shard).to(at::kBFloat16).to(at::kFloat);
    group.all_reduce_sum(tensor);
    EXPECT_TRUE(at::equal(tensor, wide.to(at::kBFloat16)));
  });
}

TEST(ProcessGroup, AShardThatFailsReleasesTheOthers) {
  auto groups = make_thread_process_groups(3);
  std::atomic<int> released{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&, i, group = std::move(groups[static_cast<std::size_t>(i)])]() mutable {
      if (i == 1) {
        group.reset();  // as its owner's destructor does while an exception is in flight
        return;
      }
      at::Tensor tensor = at::ones({4});
      try {
        group->all_reduce_sum(tensor);
      } catch (const std::exception&) {
        ++released;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(released, 2);
}

}  // namespace
}  // namespace magister
