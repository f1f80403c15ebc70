// Sums as kernels, on the host: threads replace GPUs and write into each other's memory while their kernels run. Their
// bits are those of plain additions in shard order, whichever shard is late; and a shard that waits for one that has
// left is released.
#include "magister/parallel/peer_sums.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "magister/device/cuda_graph.h"
#include "magister/device/gpu.h"
#include "magister/parallel/process_group.h"
#include "magister/parallel/side_by_side.h"
#include "parallel/gpu/peer_sum_kernel.h"
#include "parallel/ordered_sum.h"

namespace magister {
namespace peer_sums_test {

using Shard = std::function<void(ProcessGroup& group, std::size_t shard)>;

void on_shards(int num_shards, const Shard& body) {
  auto groups = make_thread_process_groups(num_shards);
  run_side_by_side(groups.size(), [&](std::size_t shard) {
    const auto mine = std::move(groups[shard]);  // gone with its thread, as in a run
    body(*mine, shard);
  });
}

// Numbers of a shard in a turn: of different sizes, so that every order of additions gives other bits, and zeros of
// both signs.
std::vector<float> numbers_of(std::size_t shard, int turn, std::int64_t count) {
  std::mt19937 engine(static_cast<unsigned>(1000 * turn) + static_cast<unsigned>(shard));
  std::uniform_real_distribution<float> mantissa(-1, 1);
  std::vector<float> numbers;
  for (std::int64_t i = 0; i < count; ++i)
    numbers.push_back(i % 17 == 3 ? -0.0f : std::ldexp(mantissa(engine), static_cast<int>(engine() % 12)));
  return numbers;
}

std::vector<float> sum_in_order(std::size_t num_shards, int turn, std::int64_t count) {
  std::vector<std::vector<float>> all;
  std::vector<const std::byte*> contributions;
  for (std::size_t shard = 0; shard < num_shards; ++shard) all.push_back(numbers_of(shard, turn, count));
  for (const auto& numbers : all) contributions.push_back(reinterpret_cast<const std::byte*>(numbers.data()));
  std::vector<float> sum(static_cast<std::size_t>(count));
  add_in_shard_order(at::kFloat, contributions, reinterpret_cast<std::byte*>(sum.data()), sum.size());
  return sum;
}

bool same_bits(const float* found, const std::vector<float>& wanted) {
  return std::memcmp(found, wanted.data(), wanted.size() * sizeof(float)) == 0;
}

// Memory as a device gives it.
class Place {
 public:
  explicit Place(std::int64_t count) : tensor_(at::empty({count}, at::kFloat)) {}
  float* put(const std::vector<float>& numbers) {
    std::copy(numbers.begin(), numbers.end(), tensor_.data_ptr<float>());
    return tensor_.data_ptr<float>();
  }

 private:
  at::Tensor tensor_;
};

class PeerSumsOf : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Shards, PeerSumsOf, testing::Values(2, 3, 4));

TEST_P(PeerSumsOf, HaveTheBitsOfAdditionsInShardOrder) {
  const auto shards = static_cast<std::size_t>(GetParam());
  on_shards(GetParam(), [&](ProcessGroup& group, std::size_t shard) {
    const gpu::Queue queue;
    PeerSums* const sums = group.peer_sums(queue);
    ASSERT_NE(sums, nullptr);
    EXPECT_EQ(group.peer_sums(queue), sums) << "once for a group";
    Place place(gpu::kPeerSumNumbers + 5);
    int turn = 0;
    for (const std::int64_t count : {1, 4, 6, 1023, 1024, 1025, 3000, 262149}) {
      float* const numbers = place.put(numbers_of(shard, ++turn, count));
      sums->queue_sum(numbers, count, queue);
      EXPECT_TRUE(same_bits(numbers, sum_in_order(shards, turn, count))) << count << " numbers, shard " << shard;
    }
  });
}

// A graph of sums of different sizes, started repeatedly, by shards that are sometimes late. Without a wait between two
// sums of a block, the second would overwrite numbers that a peer still reads.
TEST_P(PeerSumsOf, OfAGraphThatIsStartedAgainWhoeverComesLate) {
  constexpr int kStarts = 700;
  const auto shards = static_cast<std::size_t>(GetParam());
  on_shards(GetParam(), [&](ProcessGroup& group, std::size_t shard) {
    const gpu::Queue queue;
    PeerSums* const sums = group.peer_sums(queue);
    ASSERT_NE(sums, nullptr);
    const std::vector<std::int64_t> counts = {7, 1500, 40};
    std::vector<Place> places(counts.begin(), counts.end());
    std::vector<float*> numbers;
    for (std::size_t i = 0; i < counts.size(); ++i) numbers.push_back(places[i].put(numbers_of(shard, 0, counts[i])));
    const gpu::CudaGraph graph = gpu::CudaGraph::capture(queue, [&](const gpu::Queue& recorded) {
      for (std::size_t i = 0; i < counts.size(); ++i) sums->queue_sum(numbers[i], counts[i], recorded);
    });
    std::mt19937 engine(static_cast<unsigned>(shard));
    for (int start = 0; start < kStarts; ++start) {
      std::vector<std::vector<float>> wanted;
      for (std::size_t i = 0; i < counts.size(); ++i) {
        places[i].put(numbers_of(shard, start, counts[i]));
        wanted.push_back(sum_in_order(shards, start, counts[i]));
      }
      if (engine() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(engine() % 2000));
      graph.launch();
      for (std::size_t i = 0; i < counts.size(); ++i)
        ASSERT_TRUE(same_bits(numbers[i], wanted[i])) << "start " << start << ", sum " << i << ", shard " << shard;
    }
  });
}

// The last one never comes: its thread has failed, and the others know within moments, with its error.
TEST_P(PeerSumsOf, AShardThatLeavesReleasesThoseThatWait) {
  setenv("MAGISTER_NCCL_TIMEOUT_SECONDS", "200", 1);
  std::string text;
  const auto begin = std::chrono::steady_clock::now();
  try {
    on_shards(GetParam(), [&](ProcessGroup& group, std::size_t shard) {
      const gpu::Queue queue;
      PeerSums* const sums = group.peer_sums(queue);
      MAGISTER_CHECK(sums != nullptr, ExitCode::kInternal, "there are none");
      Place place(2000);
      for (int turn = 0; turn < 100; ++turn) {
        if (turn == 20 && static_cast<int>(shard) == GetParam() - 1) fail(ExitCode::kData, "a bad record");
        float* const numbers = place.put(numbers_of(shard, turn, 2000));
        try {
          sums->queue_sum(numbers, 2000, queue);
        } catch (const ShardAbandoned&) {
          EXPECT_EQ(turn, 20);
          EXPECT_TRUE(std::isnan(numbers[0]) && std::isnan(numbers[1999])) << "no number that looks like a sum";
          EXPECT_THROW(group.wait_for(GpuEvent()), ShardAbandoned) << "and whoever waits for results is told";
          EXPECT_THROW(sums->queue_sum(place.put(numbers_of(shard, turn, 2000)), 2000, queue), ShardAbandoned);
          throw;
        }
      }
    });
  } catch (const Error& error) {
    text = error.what();
  }
  EXPECT_EQ(text, "a bad record");
  unsetenv("MAGISTER_NCCL_TIMEOUT_SECONDS");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(150)) << "and not after the group's limit";
}

// No shard has left, but one does not come: a kernel does not spin for ever.
TEST(PeerSums, APeerThatDoesNotComeIsWaitedForOnlySoLong) {
  setenv("MAGISTER_NCCL_TIMEOUT_SECONDS", "0.2", 1);
  on_shards(2, [&](ProcessGroup& group, std::size_t shard) {
    const gpu::Queue queue;
    PeerSums* const sums = group.peer_sums(queue);
    ASSERT_NE(sums, nullptr);
    Place place(8);
    float* const numbers = place.put(numbers_of(shard, 0, 8));
    if (shard == 0) {
      EXPECT_THROW(sums->queue_sum(numbers, 8, queue), ShardAbandoned);
    }
    group.barrier();
  });
  unsetenv("MAGISTER_NCCL_TIMEOUT_SECONDS");
}

TEST(PeerSums, AreNotWhereTheyAreNotWantedOrTooLarge) {
  on_shards(1, [](ProcessGroup& group, std::size_t) { EXPECT_EQ(group.peer_sums({}), nullptr); });
  on_shards(9, [](ProcessGroup& group, std::size_t) { EXPECT_EQ(group.peer_sums({}), nullptr); });
  setenv("MAGISTER_PEER_SUMS", "0", 1);
  on_shards(2, [](ProcessGroup& group, std::size_t) { EXPECT_EQ(group.peer_sums({}), nullptr); });
  unsetenv("MAGISTER_PEER_SUMS");
  on_shards(2, [](ProcessGroup& group, std::size_t) {
    const PeerSums* const sums = group.peer_sums({});
    ASSERT_NE(sums, nullptr);
    EXPECT_TRUE(sums->takes(256 * 8192));
    EXPECT_FALSE(sums->takes(256 * 8192 + 1));
  });
}

}  // namespace peer_sums_test
}  // namespace magister
