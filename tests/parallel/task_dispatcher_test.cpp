// Several teams of different sizes at once: a team consists of exactly its ranks, and each task is done by the team
// that got it.
#include "magister/parallel/task_dispatcher.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <set>
#include <thread>

#include "magister/core/error.h"

namespace magister {
namespace task_dispatcher_test {

using Report = TaskDispatcher::Report;
using Decision = TaskDispatcher::Decision;

// Tasks one after the other, each over as many free groups as a sequence of widths gives.
struct InOrder {
  std::size_t num_tasks;
  std::set<int> free{};
  std::size_t next = 0;
  std::map<std::size_t, std::size_t> widths{};
  std::map<std::size_t, std::uint64_t> outcomes{};

  Decision operator()(const std::optional<Report>& report, int num_groups) {
    if (report) {
      free.insert(report->group);
      if (report->task) {
        EXPECT_TRUE(outcomes.emplace(*report->task, report->outcome).second);
      }
    }
    Decision decision;
    while (next < num_tasks) {
      const std::size_t width = 1 + next % static_cast<std::size_t>(num_groups);
      if (free.size() < width) break;
      TaskDispatcher::Start start{next, {}};
      while (start.groups.size() < width) {  // the last ones: teams without rank 0, and with holes
        start.groups.insert(start.groups.begin(), *free.rbegin());
        free.erase(std::prev(free.end()));
      }
      widths[next++] = width;
      decision.starts.push_back(std::move(start));
    }
    decision.over = next == num_tasks;
    return decision;
  }
};

void check_teams(int ranks_a_group, std::size_t num_tasks) {
  const auto world = Communicator::world();
  const int groups = TaskDispatcher::num_groups(world.size(), ranks_a_group);
  InOrder decide{num_tasks};
  {
    TaskDispatcher dispatcher(world, ranks_a_group,
                              [&](const std::optional<Report>& report) { return decide(report, groups); });
    std::optional<TaskDispatcher::Team> team = dispatcher.next();
    while (team) {
      const std::uint64_t rank = static_cast<std::uint64_t>(world.rank());
      const std::uint64_t sum = team->ranks.sum(rank), task = team->ranks.max(team->task);
      EXPECT_EQ(task, team->ranks.min(team->task));
      if (task % 3 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(rank % 3));
      // The outcome of the team's first rank is the one that counts.
      const std::uint64_t outcome =
          team->ranks.rank() == 0 ? 1 + 10'000 * sum + static_cast<std::uint64_t>(team->ranks.size()) : 7;
      team = dispatcher.next(team, outcome);
    }
    world.wait_for_all();
  }
  if (world.rank() != 0) return;
  ASSERT_EQ(decide.outcomes.size(), num_tasks);
  for (const auto& [task, outcome] : decide.outcomes) {
    const std::size_t ranks = (outcome - 1) % 10'000, width = decide.widths[task];
    const std::size_t a_group = static_cast<std::size_t>(ranks_a_group),
                      rest = static_cast<std::size_t>(world.size()) - static_cast<std::size_t>(groups) * a_group;
    EXPECT_TRUE(ranks == width * a_group || ranks == width * a_group + rest) << task << " had " << ranks;
    if (width == static_cast<std::size_t>(groups)) {
      EXPECT_EQ((outcome - 1) / 10'000, static_cast<std::uint64_t>(world.size() * (world.size() - 1) / 2)) << task;
    }
  }
}

TEST(TaskDispatcher, TeamsOfSingleRanks) { check_teams(1, 200); }
TEST(TaskDispatcher, TeamsOfGroupsOfTwoAndARemainder) { check_teams(2, 60); }
TEST(TaskDispatcher, NothingToDo) { check_teams(1, 0); }

TEST(TaskDispatcher, IsAskedWithoutReportsToo) {
  const auto world = Communicator::world();
  std::atomic<int> calls{0};
  TaskDispatcher dispatcher(world, 1, [&](const std::optional<Report>&) {
    return Decision{{}, ++calls > 2 * world.size() + 3};  // a stop that no rank reports
  });
  EXPECT_FALSE(dispatcher.next().has_value());
  world.wait_for_all();
}

}  // namespace task_dispatcher_test
}  // namespace magister
