// Communicators on 1, 2 and 4 ranks: sums, gathers, long texts, splits, moved-from objects.
#include "magister/parallel/communicator.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <chrono>
#include <ctime>
#include <span>
#include <thread>
#include <vector>

#include "magister/core/error.h"
#include "magister/core/host_name.h"
#include "magister/parallel/exchange.h"
#include "parallel/communicator_handle.h"

namespace magister {
namespace communicator_test {

TEST(Communicator, SumsAndScans) {
  const auto world = Communicator::world();
  const auto rank = static_cast<std::uint64_t>(world.rank()), size = static_cast<std::uint64_t>(world.size());
  EXPECT_EQ(world.sum(rank + 1), size * (size + 1) / 2);
  EXPECT_EQ(world.max(rank), size - 1);
  EXPECT_EQ(world.min(rank + 5), 5u);
  EXPECT_EQ(world.exclusive_sum(rank + 1), rank * (rank + 1) / 2);
  EXPECT_EQ(world.all_gather(rank * 3).back(), (size - 1) * 3);
}

TEST(Communicator, MovesTextsOfDifferentLengths) {
  const auto world = Communicator::world();
  const std::string mine(static_cast<std::size_t>(world.rank()) * 100000, static_cast<char>('a' + world.rank()));
  const auto all = world.all_gather(mine);
  const auto gathered = world.gather(mine, 0);
  ASSERT_EQ(all.size(), static_cast<std::size_t>(world.size()));
  for (int r = 0; r < world.size(); ++r) {
    const std::string theirs(static_cast<std::size_t>(r) * 100000, static_cast<char>('a' + r));
    EXPECT_EQ(all[static_cast<std::size_t>(r)], theirs);
    if (world.rank() == 0) {
      EXPECT_EQ(gathered[static_cast<std::size_t>(r)], theirs);
    }
  }
  std::string text = world.rank() == 0 ? "from rank 0" : "";
  world.broadcast(text, 0);
  EXPECT_EQ(text, "from rank 0");
}

TEST(Communicator, SplitsAndFreesLocally) {
  const auto world = Communicator::world();
  const auto half = world.split(world.rank() / 2, world.rank());
  EXPECT_EQ(half.size(), std::min(2, world.size() - world.rank() / 2 * 2));
  EXPECT_EQ(half.rank(), world.rank() % 2);
  const auto left_out = world.split(world.rank() == 0 ? -1 : 0, 0);
  if (world.rank() == 0) {
    EXPECT_EQ(left_out.size(), 1);
  }
  EXPECT_EQ(world.split_by_host().size(), world.size());
}

// The first message is in flight when the second cannot be started, because there is no such rank.
TEST(Communicator, MemoryOfAHalfStartedExchangeIsNotFreed) {
  const auto world = Communicator::world();
  if (world.size() == 1) GTEST_SKIP() << "there is no other rank";
  const int next = (world.rank() + 1) % world.size(), last = (world.rank() + world.size() - 1) % world.size();
  at::Tensor place = at::zeros({4}, at::kInt);
  const auto bytes = static_cast<std::size_t>(place.nbytes());
  const std::vector<Transfer> broken = {{place.data_ptr(), bytes, last, false},
                                        {place.data_ptr(), bytes, world.size() + 7, false}};
  EXPECT_THROW(PendingExchange(world, broken, 77, {place}), Error);
  EXPECT_EQ(place.use_count(), 2u) << "MPI may still write to it";
  at::Tensor sent = at::full({4}, 5 + world.rank(), at::kInt);
  exchange(world, std::vector<Transfer>{{sent.data_ptr(), bytes, next, true}}, 77);
  world.barrier();
  at::Tensor other = at::zeros({4}, at::kInt);
  exchange(world, std::vector<Transfer>{{sent.data_ptr(), bytes, next, true}, {other.data_ptr(), bytes, last, false}},
           78);
  EXPECT_TRUE(place.equal(at::full({4}, 5 + last, at::kInt))) << "the message that was started has arrived";
}

TEST(Communicator, AMovedFromObjectIsAlone) {
  auto one = Communicator::world();
  const int size = one.size();
  const auto two = std::move(one);
  EXPECT_EQ(two.size(), size);
  EXPECT_EQ(one.size(), 1);  // NOLINT(bugprone-use-after-move): its state is promised
  EXPECT_EQ(one.sum(std::uint64_t{7}), 7u);
  two.barrier();
  int idle_calls = 0;
  two.wait_for_all([&] { ++idle_calls; });
  EXPECT_GE(idle_calls, 0);
}

TEST(Communicator, LongMessagesGoInPieces) {
  const auto world = Communicator::world();
  world.handle()->piece_bytes = 1000;
  std::vector<std::uint32_t> numbers(12'345);
  const auto value = [](int rank, std::size_t i) {
    return static_cast<std::uint32_t>(i * 2654435761u + static_cast<unsigned>(rank));
  };
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = value(world.rank(), i);
  const std::size_t bytes = numbers.size() * sizeof(std::uint32_t);
  const int next = (world.rank() + 1) % world.size(), before = (world.rank() + world.size() - 1) % world.size();
  if (world.size() > 1) {
    std::vector<std::uint32_t> received(numbers.size());
    if (world.rank() % 2 == 0) world.send(numbers.data(), bytes, next, 5);
    world.receive(received.data(), bytes, before, 5);
    if (world.rank() % 2 != 0) world.send(numbers.data(), bytes, next, 5);
    EXPECT_EQ(received.back(), value(before, received.size() - 1));
    EXPECT_EQ(received[777], value(before, 777));
  }
  std::vector<std::uint32_t> all(numbers.size() * static_cast<std::size_t>(world.size()));
  world.all_gather(std::as_bytes(std::span(numbers)), std::as_writable_bytes(std::span(all)));
  for (int rank = 0; rank < world.size(); ++rank) {
    EXPECT_EQ(all[numbers.size() * static_cast<std::size_t>(rank) + 4321], value(rank, 4321));
  }
  const int root = world.size() - 1;
  world.broadcast(numbers.data(), bytes, root);
  for (std::size_t i = 0; i < numbers.size(); ++i) ASSERT_EQ(numbers[i], value(root, i));
  std::vector<float> sums(5001);
  for (std::size_t i = 0; i < sums.size(); ++i)
    sums[i] = static_cast<float>(i % 100 + static_cast<std::size_t>(world.rank()));
  world.sum(sums);
  for (std::size_t i = 0; i < sums.size(); ++i)
    ASSERT_EQ(sums[i],
              static_cast<float>(world.size() * (2 * (i % 100) + static_cast<std::size_t>(world.size()) - 1)) / 2);
  const auto texts = world.all_gather(std::string(700 + static_cast<std::size_t>(world.rank()), 'x'));
  for (std::size_t rank = 0; rank < texts.size(); ++rank) EXPECT_EQ(texts[rank].size(), 700 + rank);
}

TEST(Communicator, WaitsWithoutBurningTheCore) {
  // Rank 0 comes when every other rank has looked for it fifty times, however long that takes them.
  constexpr int kTag = 7, kLooks = 50;
  const auto world = Communicator::world();
  int looks = 0;
  if (world.rank() == 0) {
    for (int rank = 1; rank < world.size(); ++rank) {
      world.receive_asleep(&looks, sizeof looks, rank, kTag, std::chrono::milliseconds(1));
      EXPECT_EQ(looks, kLooks);
    }
  }
  const auto begin = std::chrono::steady_clock::now();
  const std::clock_t cpu_begin = std::clock();
  looks = 0;
  world.wait_for_all([&] {
    if (++looks == kLooks && world.rank() != 0) world.send(&looks, sizeof looks, 0, kTag);
  });
  const double cpu_seconds = static_cast<double>(std::clock() - cpu_begin) / CLOCKS_PER_SEC;
  const std::chrono::duration<double, std::milli> waited = std::chrono::steady_clock::now() - begin;
  if (world.rank() != 0) {
    EXPECT_GE(looks, kLooks);
    EXPECT_LE(looks, waited.count() + 1) << "a pause of 1 ms stands between two of them";
    EXPECT_LT(cpu_seconds, 0.8e-3 * waited.count());
  }
}

TEST(Communicator, AFailedCallNamesItselfTheReasonAndTheHost) {
  const auto world = Communicator::world();
  const int nobody = world.size() + 3, number = 1;
  try {
    world.send(&number, sizeof number, nobody, 0);
    FAIL() << "sent to rank " << nobody;
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_EQ(error.code(), ExitCode::kInternal);
    for (const std::string& part :
         {std::string("MPI_Send("), std::string("MPI_ERR_RANK"), "rank " + std::to_string(world.rank()), host_name()}) {
      EXPECT_NE(text.find(part), std::string::npos) << text;
    }
  }
}

TEST(Communicator, AloneEveryCallIsLocal) {
  const Communicator alone;
  std::string text = "kept";
  alone.broadcast(text, 0);
  EXPECT_EQ(text, "kept");
  EXPECT_EQ(alone.all_gather(text), std::vector<std::string>{"kept"});
  EXPECT_EQ(alone.gather(text, 0), std::vector<std::string>{"kept"});
  EXPECT_EQ(alone.exclusive_sum(9), 0u);
  EXPECT_EQ(alone.max(2.5), 2.5);
  EXPECT_EQ(alone.split(0, 0).size(), 1);
  EXPECT_EQ(alone.duplicate().size(), 1);
  alone.barrier();
  alone.wait_for_all();
  int number = 0;
  EXPECT_THROW(alone.send(&number, sizeof number, 0, 0), Error);
}

}  // namespace communicator_test
}  // namespace magister
