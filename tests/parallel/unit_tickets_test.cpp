// Every unit is drawn exactly once over the groups, whichever the schedule; a stop reaches everybody.
#include "magister/parallel/unit_tickets.h"

#include <gtest/gtest.h>

#include "magister/parallel/communicator.h"

namespace magister {
namespace {

class Tickets : public testing::TestWithParam<Schedule> {};

TEST_P(Tickets, AreDrawnExactlyOnce) {
  const auto world = Communicator::world();
  std::vector<std::uint64_t> pending;
  for (std::uint64_t i = 0; i < 500; ++i) pending.push_back(i * 3);
  UnitTickets tickets(world, pending, GetParam(), world.rank(), world.size());
  std::uint64_t count = 0, sum = 0;
  while (const auto unit = tickets.draw()) {
    ++count;
    sum += *unit;
    tickets.report_done(10);
  }
  EXPECT_EQ(world.sum(count), 500u);
  EXPECT_EQ(world.sum(sum), 3u * 499 * 500 / 2);
  world.barrier();
  EXPECT_EQ(tickets.progress().units_done, 500u);
  EXPECT_EQ(tickets.progress().tokens_done, 5000u);
  tickets.free();
}

TEST_P(Tickets, StopReachesEveryRank) {
  const auto world = Communicator::world();
  UnitTickets tickets(world, std::vector<std::uint64_t>(100, 1), GetParam(), world.rank(), world.size());
  world.barrier();
  if (world.rank() == world.size() - 1) tickets.request_stop();
  world.barrier();
  EXPECT_FALSE(tickets.draw().has_value());
  EXPECT_TRUE(tickets.stop_requested());
  tickets.free();
}

INSTANTIATE_TEST_SUITE_P(Schedules, Tickets, testing::Values(Schedule::kDynamic, Schedule::kStatic));

}  // namespace
}  // namespace magister
