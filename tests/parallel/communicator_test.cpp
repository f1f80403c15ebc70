// Communicators on 1, 2 and 4 ranks: sums, gathers, long texts, splits, moved-from objects.
#include "magister/parallel/communicator.h"

#include <gtest/gtest.h>

namespace magister {
namespace {

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

}  // namespace
}  // namespace magister
