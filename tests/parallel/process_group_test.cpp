// CPU groups: threads, ranks and both mixed give the same bits; a shard that fails releases the others.
#include "magister/parallel/process_group.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <random>
#include <thread>

#include "magister/parallel/communicator.h"

namespace magister {
namespace process_group_test {

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
    using Numbers = std::vector<std::int64_t>;
    EXPECT_EQ(group.gather_numbers({group.tp_rank(), 9}), (std::vector<Numbers>{{0, 9}, {1, 9}, {2, 9}, {3, 9}}));
    EXPECT_EQ(group.least_number(5 - group.tp_rank()), 2);
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

TEST(ProcessGroup, LongTensorsOfUnevenLengthHaveTheBitsOfThePlainSum) {
  // Around 64 KiB over the shards (the small way), around 4 MiB (a piece), and lengths that four shards do not divide.
  for (const std::int64_t count : {0, 1, 3, 4095, 4096, 4097, 50'001, 1'048'575, 1'048'577}) {
    for (const auto type : {at::kFloat, at::kHalf, at::kLong}) {
      if (type != at::kFloat && count > 100'000) continue;
      on_four_shards([&](ProcessGroup& group) {
        const auto part = [&](int shard) {
          return (at::sin(at::arange(count, at::kDouble) * (shard + 0.7)) * std::pow(100.0, shard % 3)).to(type);
        };
        at::Tensor tensor = part(group.tp_rank());
        group.all_reduce_sum(tensor);
        const bool narrow = type == at::kHalf;
        at::Tensor expected = part(0).to(narrow ? at::kFloat : type);
        for (int shard = 1; shard < 4; ++shard) expected += part(shard).to(expected.scalar_type());
        EXPECT_TRUE(at::equal(tensor, expected.to(type))) << c10::toString(type) << " " << count;
      });
    }
  }
}

TEST(ProcessGroup, LongGathersScattersAndBroadcasts) {
  on_four_shards([](ProcessGroup& group) {
    const auto part = [](int shard) { return at::arange(1'050'001, at::kInt).mul_(shard + 1).view({-1, 1}); };
    const at::Tensor all = group.all_gather(part(group.tp_rank()));
    EXPECT_TRUE(at::equal(all, at::cat({part(0), part(1), part(2), part(3)})));
    at::Tensor tensor = part(group.tp_rank());
    group.broadcast(tensor, 2);
    EXPECT_TRUE(at::equal(tensor, part(2)));
    const auto rows = [](int shard) {
      return at::cos(at::arange(4 * 300'003, at::kFloat) * (shard + 1)).view({-1, 1});
    };
    at::Tensor sum = rows(0);
    for (int shard = 1; shard < 4; ++shard) sum += rows(shard);
    at::Tensor nothing = at::empty({0, 3});
    group.broadcast(nothing, 1);
    EXPECT_EQ(group.all_gather(nothing).numel() + group.reduce_scatter(nothing).numel(), 0);
    const at::Tensor own = group.reduce_scatter(rows(group.tp_rank()));
    EXPECT_TRUE(at::equal(own, sum.narrow(0, 300'003 * group.tp_rank(), 300'003)));
  });
}

TEST(ProcessGroup, AnySequenceOfCallsKeepsItsOrder) {
  on_four_shards([](ProcessGroup& group) {
    std::mt19937 random(11);  // the same calls on every shard
    for (int call = 0; call < 400; ++call) {
      const std::int64_t count = 4 * (1 + static_cast<std::int64_t>(random() % 9000));
      const int root = static_cast<int>(random() % 4);
      at::Tensor tensor = at::full({count}, static_cast<double>(group.tp_rank() + call), at::kFloat);
      const float sum = 6.0f + 4.0f * static_cast<float>(call);
      switch (random() % 4) {
        case 0:
          group.all_reduce_sum(tensor);
          break;
        case 1:
          tensor = group.reduce_scatter(tensor);
          break;
        case 2:
          tensor = group.all_gather(tensor).view({4, count}).sum(0);
          break;
        default:
          group.broadcast(tensor, root);
          tensor += static_cast<double>(sum - static_cast<float>(root + call));
      }
      ASSERT_TRUE((tensor == sum).all().item<bool>()) << call;
    }
  });
}

TEST(ProcessGroup, SaysWhatItIs) {
  const auto world = Communicator::world();
  for (const auto& group : make_cpu_process_groups(world, 2)) {
    EXPECT_EQ(group->backend(), world.size() == 1 ? "threads" : "mpi");
    EXPECT_EQ(group->tp_size(), 2 * world.size());
    EXPECT_EQ(group->tp_rank() / 2, world.rank());
  }
  const auto one = make_single_process_group();
  at::Tensor tensor = at::arange(5, at::kFloat);
  one->all_reduce_sum(tensor);
  one->broadcast(tensor, 0);
  one->barrier();
  EXPECT_TRUE(at::equal(one->all_gather(tensor), at::arange(5, at::kFloat)));
  EXPECT_TRUE(at::equal(one->reduce_scatter(tensor), at::arange(5, at::kFloat)));
  const auto over_ranks = make_mpi_process_group(world);
  over_ranks->all_reduce_sum(tensor);
  EXPECT_TRUE(at::equal(tensor, at::arange(5, at::kFloat) * world.size()));
}

TEST(ProcessGroup, ShardsThatDisagreeAreStopped) {
  auto groups = make_thread_process_groups(2);
  std::atomic<int> stopped{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      at::Tensor tensor = at::ones({4 + i});
      try {
        groups[static_cast<std::size_t>(i)]->all_reduce_sum(tensor);
      } catch (const Error&) {
        ++stopped;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(stopped, 2);
}

TEST(ProcessGroup, RefusesTensorsItCannotRead) {
  const auto group = make_single_process_group();
  at::Tensor across = at::ones({4, 4}).t();
  EXPECT_NO_THROW(group->all_gather(across));  // makes its own copy
  at::Tensor strided = at::ones({4, 6}).narrow(1, 0, 3);
  EXPECT_THROW(group->all_reduce_sum(strided), Error);
  EXPECT_THROW(group->broadcast(strided, 0), Error);
}

// The error that a caller sees first must be the cause, so the others' has a type of its own.
TEST(ProcessGroup, AShardThatFailsReleasesTheOthers) {
  for (int failing = 0; failing < 3; ++failing) {
    auto groups = make_thread_process_groups(3);
    std::atomic<int> released{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&, i, group = std::move(groups[static_cast<std::size_t>(i)])]() mutable {
        try {
          at::Tensor tensor = at::ones({40'000});
          for (int round = 0; round < 10; ++round) {
            if (i == failing && round == 7) throw std::runtime_error("this shard's own error");
            group->all_reduce_sum(tensor);
            group->barrier();
          }
          ADD_FAILURE() << "shard " << i << " finished without shard " << failing;
        } catch (const ShardAbandoned&) {
          ++released;
          EXPECT_NE(i, failing);
        } catch (const std::runtime_error&) {
          EXPECT_EQ(i, failing);
          std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the others sleep after this time
          group.reset();  // as its owner's destructor does while the exception is in flight
        }
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(released, 2);
  }
}

TEST(ProcessGroup, AShardThatIsDoneSpoilsNothing) {
  for (int round = 0; round < 200; ++round) {
    auto groups = make_thread_process_groups(3);
    std::vector<std::thread> threads;
    for (auto& owned : groups) {
      threads.emplace_back([group = std::move(owned)]() mutable {
        at::Tensor tensor = at::ones({8});
        EXPECT_NO_THROW(group->all_reduce_sum(tensor));
        EXPECT_EQ(tensor[7].item<float>(), 3);
        group.reset();
      });
    }
    for (auto& thread : threads) thread.join();
  }
}

}  // namespace process_group_test
}  // namespace magister
