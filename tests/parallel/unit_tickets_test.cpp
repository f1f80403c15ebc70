// Every unit is claimed exactly once over the groups, whichever the schedule and the kind of counters; a stop reaches
// everybody; several threads of a rank may ask at once.
#include "magister/parallel/unit_tickets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <thread>

#include "magister/core/error.h"
#include "magister/parallel/communicator.h"
#include "magister/parallel/watchdog.h"
#include "parallel/shared_counters.h"

namespace magister {
namespace unit_tickets_test {

UnitSet multiples_of_three(std::uint64_t count) {
  return UnitSet(3 * count, [](std::uint64_t first, std::span<std::uint8_t> flags) {
    for (std::size_t i = 0; i < flags.size(); ++i) flags[i] = (first + i) % 3 != 0;
  });
}

// Open MPI gives the windows of disjoint communicators one memory.
TEST(Counters, OfPartsOfTheJobAreTheirOwn) {
  const auto world = Communicator::world();
  const int half = world.rank() % 2;
  const Communicator part = world.split(half, world.rank());
  for (int round = 0; round < 20; ++round) {
    const auto counters = make_shared_counters(part, 3);
    part.wait_for_all();
    for (int i = 0; i < 50; ++i) counters->fetch_add(2, half == 0 ? 1 : 1000);
    part.wait_for_all();
    const auto size = static_cast<std::uint64_t>(part.size());
    EXPECT_EQ(counters->read(0, 3), (std::vector<std::uint64_t>{0, 0, 50 * size * (half == 0 ? 1 : 1000)})) << round;
    part.wait_for_all();
    counters->free();
  }
}

class Tickets : public testing::TestWithParam<Schedule> {};

TEST_P(Tickets, AreClaimedExactlyOnce) {
  const auto world = Communicator::world();
  UnitTickets tickets(world, multiples_of_three(500), GetParam(), world.rank(), world.size());
  std::uint64_t count = 0, sum = 0;
  while (const auto unit = tickets.claim()) {
    ++count;
    sum += *unit;
    tickets.report_done(10);
    tickets.report_written(4);
  }
  EXPECT_EQ(world.sum(count), 500u);
  EXPECT_EQ(world.sum(sum), 3u * 499 * 500 / 2);
  world.wait_for_all();
  EXPECT_EQ(tickets.progress().units_done, 500u);
  EXPECT_EQ(tickets.progress().tokens_done, 5000u);
  EXPECT_EQ(tickets.progress().tokens_written, 2000u);
  const std::vector<std::uint64_t> by_group = tickets.tokens_by_group();
  ASSERT_EQ(by_group.size(), static_cast<std::size_t>(world.size()));
  EXPECT_EQ(by_group[static_cast<std::size_t>(world.rank())], 10 * count);
  // Rank 0 comes when every other rank has been idle.
  constexpr int kTag = 7;
  int idle_calls = 0;
  for (int rank = 1; rank < (world.rank() == 0 ? world.size() : 1); ++rank)
    world.receive_asleep(&idle_calls, sizeof idle_calls, rank, kTag, std::chrono::milliseconds(1));
  idle_calls = 0;
  tickets.free([&] {
    if (++idle_calls == 1 && world.rank() != 0) world.send(&idle_calls, sizeof idle_calls, 0, kTag);
  });
  if (world.rank() != 0) {
    EXPECT_GT(idle_calls, 0);
  }
  EXPECT_EQ(tickets.progress().units_done, 500u);  // as last seen
  EXPECT_FALSE(tickets.stop_requested());
  EXPECT_THROW(tickets.report_done(1), Error);
  tickets.free();  // again: nothing
}

// A claim is bounded by the units left at its first unit, in every order of the ranks: a rank that pauses within a
// claim of two may find that the others have taken all the rest.
TEST_P(Tickets, SeveralAtATimeAreClaimedExactlyOnce) {
  const auto world = Communicator::world();
  constexpr std::uint64_t kUnits = 500, kMost = 8;
  UnitTickets tickets(world, multiples_of_three(kUnits), GetParam(), world.rank(), world.size());
  std::uint64_t count = 0, sum = 0;
  std::size_t largest = 0, last = 0;
  const auto never = [](std::uint64_t) { return false; };
  for (auto units = tickets.claim_several(kMost, never); !units.empty(); units = tickets.claim_several(kMost, never)) {
    EXPECT_TRUE(std::is_sorted(units.begin(), units.end()));
    const std::uint64_t left = kUnits - units.front() / 3, groups = static_cast<std::uint64_t>(world.size());
    EXPECT_LE(units.size(), std::clamp<std::uint64_t>(left / (2 * groups), 1, kMost)) << left << " were left";
    largest = std::max(largest, units.size());
    last = units.size();
    count += units.size();
    sum = std::accumulate(units.begin(), units.end(), sum);
  }
  EXPECT_EQ(world.sum(count), kUnits);
  EXPECT_EQ(world.sum(sum), 3u * 499 * 500 / 2);
  // Here the units of this rank are its own, and it takes them all.
  if (GetParam() == Schedule::kStatic || world.size() == 1) {
    EXPECT_EQ(last, 1u);
  }
  EXPECT_EQ(world.max(largest), kMost);
  tickets.free();
}

// No more than half of an equal part of what is left: groups end together.
TEST(TicketsOfOneGroup, BecomeFewerTowardsTheEnd) {
  const auto world = Communicator::world();
  UnitTickets tickets(world, UnitSet::all(20), Schedule::kDynamic, 0, 2);
  if (world.rank() == 0) {
    std::vector<std::size_t> sizes;
    const auto after_the_second = [](std::uint64_t unit) { return unit == 1; };
    for (auto units = tickets.claim_several(4, after_the_second); !units.empty();
         units = tickets.claim_several(4, after_the_second))
      sizes.push_back(units.size());
    EXPECT_EQ(sizes, (std::vector<std::size_t>{2, 4, 3, 2, 2, 1, 1, 1, 1, 1, 1, 1}));
  }
  world.wait_for_all();
  tickets.free();
}

TEST_P(Tickets, GroupsWithoutALeaderOnThisRankClaimNothing) {
  const auto world = Communicator::world();
  // One group over all ranks: rank 0 claims for it, the others only watch.
  UnitTickets tickets(world, multiples_of_three(40), GetParam(), 0, 1);
  std::uint64_t count = 0;
  if (world.rank() == 0) {
    while (tickets.claim()) tickets.report_done(1), ++count;
    EXPECT_EQ(count, 40u);
  }
  world.wait_for_all();
  EXPECT_EQ(tickets.progress().units_done, 40u);
  tickets.free();
}

TEST_P(Tickets, StopReachesEveryRank) {
  const auto world = Communicator::world();
  UnitTickets tickets(world, UnitSet::all(100), GetParam(), world.rank(), world.size());
  EXPECT_TRUE(tickets.claim().has_value());
  world.wait_for_all();
  if (world.rank() == world.size() - 1) tickets.request_stop();
  world.wait_for_all();
  EXPECT_FALSE(tickets.claim().has_value());
  EXPECT_TRUE(tickets.stop_requested());
  tickets.free();
  EXPECT_TRUE(tickets.stop_requested());
}

TEST_P(Tickets, NothingToDo) {
  const auto world = Communicator::world();
  UnitTickets tickets(world, {}, GetParam(), world.rank(), world.size());
  EXPECT_FALSE(tickets.claim().has_value());
  EXPECT_EQ(tickets.progress().units_done, 0u);
  tickets.free();
}

// A rank's writer thread reports while its main thread claims; rank 0's watchdog keeps MPI going while rank 0 computes.
TEST_P(Tickets, ThreadsOfARankMayAskAtOnce) {
  const auto world = Communicator::world();
  const Watchdog watchdog(std::chrono::minutes(1), world.rank() == 0);
  UnitTickets tickets(world, multiples_of_three(300), GetParam(), world.rank(), world.size());
  std::thread writer([&] {
    for (int i = 0; i < 100; ++i) tickets.report_done(7);
  });
  std::uint64_t count = 0;
  while (tickets.claim()) {
    ++count;
    tickets.progress();
  }
  writer.join();
  EXPECT_EQ(world.sum(count), 300u);
  world.wait_for_all();
  EXPECT_EQ(tickets.progress().units_done, 100u * static_cast<std::uint64_t>(world.size()));
  EXPECT_EQ(tickets.progress().tokens_done, 700u * static_cast<std::uint64_t>(world.size()));
  tickets.free();
}

INSTANTIATE_TEST_SUITE_P(Schedules, Tickets, testing::Values(Schedule::kDynamic, Schedule::kStatic));

TEST(StaticTickets, GiveEachGroupEveryNthUnit) {
  const auto world = Communicator::world();
  UnitTickets tickets(world, multiples_of_three(50), Schedule::kStatic, world.rank(), world.size());
  for (auto i = static_cast<std::uint64_t>(world.rank()); i < 50; i += static_cast<std::uint64_t>(world.size())) {
    EXPECT_EQ(tickets.claim(), i * 3);
  }
  EXPECT_EQ(tickets.claim(), std::nullopt);
  tickets.free();
}

// Rank r holds groups 2r and 2r + 1: they share the entries of both, and each has its own tokens.
TEST(StaticTickets, GroupsOfARankShareTheirUnits) {
  const auto world = Communicator::world();
  UnitTickets tickets(world, UnitSet::all(50), Schedule::kStatic, 2 * world.rank(), 2 * world.size(), 2);
  const auto stride = 2 * static_cast<std::uint64_t>(world.size()),
             first = 2 * static_cast<std::uint64_t>(world.rank());
  for (std::uint64_t i = 0; i < 50; ++i) {
    if (i % stride / 2 * 2 != first) continue;
    EXPECT_EQ(tickets.claim(), i);
  }
  EXPECT_EQ(tickets.claim(), std::nullopt);
  tickets.report_done(3);
  tickets.report_done(5, 1);
  world.wait_for_all();
  const std::vector<std::uint64_t> by_group = tickets.tokens_by_group();
  ASSERT_EQ(by_group.size(), stride);
  EXPECT_EQ(by_group[first], 3u);
  EXPECT_EQ(by_group[first + 1], 5u);
  world.wait_for_all();
  EXPECT_FALSE(tickets.stop_requested());
  if (world.rank() == 0) tickets.give_up();
  EXPECT_EQ(tickets.stop_requested(), world.rank() == 0);
  tickets.free();
}

// All groups together may hold all that is left, none of them more than its part, and the last unit is somebody's.
TEST(FairShare, IsAnEqualPartOfWhatIsNotComputed) {
  const auto world = Communicator::world();
  const auto ranks = static_cast<std::uint64_t>(world.size());
  constexpr std::uint64_t kUnits = 24;
  UnitTickets tickets(world, multiples_of_three(kUnits), Schedule::kDynamic, world.rank(), world.size());
  EXPECT_EQ(tickets.fair_share(), (kUnits + ranks - 1) / ranks);
  std::uint64_t held = 0;
  while (held < tickets.fair_share() && tickets.claim()) ++held;
  EXPECT_LE(held, (kUnits + ranks - 1) / ranks);
  const std::uint64_t claimed = world.sum(held);
  EXPECT_EQ(claimed, kUnits) << "each took its part, though others may have come later";
  for (std::uint64_t left = kUnits; left > 0; --left) {
    EXPECT_EQ(tickets.fair_share(), (left + ranks - 1) / ranks);
    world.wait_for_all();
    if (world.rank() == 0) tickets.report_computed();
    world.wait_for_all();
  }
  EXPECT_EQ(tickets.fair_share(), 0u);
  tickets.free();
}

// Units computed by other ranks do not count for a rank whose units are its own: only groups of one rank share those.
TEST(FairShare, OfAStaticScheduleIsOfTheRanksOwnUnits) {
  const auto world = Communicator::world();
  constexpr std::uint64_t kUnits = 51;
  UnitTickets tickets(world, UnitSet::all(kUnits), Schedule::kStatic, 2 * world.rank(), 2 * world.size(), 2);
  const std::uint64_t share = tickets.fair_share();
  std::uint64_t own = 0;
  while (tickets.claim()) ++own;
  EXPECT_EQ(share, (own + 1) / 2);
  EXPECT_EQ(world.sum(own), kUnits);
  for (std::uint64_t i = 0; i < own; ++i) tickets.report_computed();
  EXPECT_EQ(tickets.fair_share(), 0u);
  tickets.free();
}

// Each size by itself.
TEST(FairShare, OfASizeIsOfItsUnits) {
  const auto world = Communicator::world();
  if (world.size() == 1) return;
  const GroupShares shares({{2, 3}, {1, 1}});
  const int size = world.rank() % 2 == 0 ? 2 : 1, of_two = (world.size() + 1) / 2;
  const int groups = size == 2 ? of_two : world.size() - of_two;
  const GroupsOfSize of_size{shares, size, world.rank() / 2, groups};
  UnitTickets tickets(world, UnitSet::all(40), Schedule::kDynamic, world.rank(), world.size(), 1, of_size);
  const auto count = static_cast<std::uint64_t>(groups);
  const std::uint64_t units = size == 2 ? 30 : 10;
  EXPECT_EQ(tickets.fair_share(), (units + count - 1) / count);
  world.wait_for_all();
  if (world.rank() == 1) tickets.report_computed();
  world.wait_for_all();
  EXPECT_EQ(tickets.fair_share(), (units - (size == 1 ? 1 : 0) + count - 1) / count);
  tickets.free();
}

// Even ranks are groups of 2 and odd ones groups of 1; the groups of 2 have three quarters of the units, the others the
// rest.
TEST_P(Tickets, OfASizeAreClaimedByItsGroups) {
  const auto world = Communicator::world();
  if (world.size() == 1) return;
  const GroupShares shares({{2, 3}, {1, 1}});
  const int size = world.rank() % 2 == 0 ? 2 : 1, of_two = (world.size() + 1) / 2;
  const GroupsOfSize of_size{shares, size, world.rank() / 2, size == 2 ? of_two : world.size() - of_two};
  UnitTickets tickets(world, multiples_of_three(400), GetParam(), world.rank(), world.size(), 1, of_size);
  std::uint64_t count = 0, sum = 0;
  while (const auto unit = tickets.claim()) {
    EXPECT_EQ(shares.size_of(*unit), size);
    ++count;
    sum += *unit;
    tickets.report_done(10);
  }
  EXPECT_EQ(world.sum(count), 400u);
  EXPECT_EQ(world.sum(sum), 3u * 399 * 400 / 2);
  world.wait_for_all();
  EXPECT_EQ(tickets.progress().units_done, 400u);
  tickets.free();
}

TEST(UnitTickets, DifferentListsAreRefused) {
  const auto world = Communicator::world();
  if (world.size() == 1) return;  // one rank has one list; NP 2, 4 and 8 run what follows
  const auto rank = static_cast<std::uint64_t>(world.rank());
  const UnitSet longer = UnitSet::all(3 + rank), others(3, [&](std::uint64_t, std::span<std::uint8_t> flags) {
    for (std::size_t i = 0; i < flags.size(); ++i) flags[i] = i == rank % 3;
  });
  for (const UnitSet& pending : {longer, others}) {
    EXPECT_THROW(UnitTickets(world, pending, Schedule::kDynamic, world.rank(), world.size()), Error);
  }
  EXPECT_THROW(UnitTickets(world, UnitSet::all(1), Schedule::kDynamic, world.size(), world.size()), Error);
}

// The kind that MPI without windows gets is tested through MCA settings in endings_test.py; here is what the others
// give.
TEST(SharedCounters, AddOverAllRanks) {
  const auto world = Communicator::world();
  const auto counters = make_shared_counters(world, 3);
  EXPECT_EQ(counters->kind(), world.size() == 1 ? "local" : "window");
  for (int i = 0; i < 100; ++i) counters->fetch_add(2, 5);
  world.wait_for_all();
  EXPECT_EQ(counters->fetch_add(2, 0), 500u * static_cast<std::uint64_t>(world.size()));
  EXPECT_EQ(counters->fetch_add(1, 0), 0u);
  world.wait_for_all();
  counters->free();
}

}  // namespace unit_tickets_test
}  // namespace magister
