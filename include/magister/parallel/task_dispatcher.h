// Gives tasks to teams of GPU groups when groups become free: tasks of an experiment that do not need each other run at
// the same time, and no rank waits for ranks that compute another task.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "magister/parallel/communicator.h"

namespace magister {

class TaskDispatcher {
 public:
  // A report that a group is free. The first group of a team also reports its finished task and the outcome.
  struct Report {
    int group = 0;
    std::optional<std::size_t> task;
    std::uint64_t outcome = 0;
  };
  struct Start {
    std::size_t task = 0;
    std::vector<int> groups;  // ascending; all of them must be free
  };
  struct Decision {
    std::vector<Start> starts;
    bool over = false;  // no further task will begin: free groups, and groups that report later, leave
  };
  // Called on rank 0 on a thread of its own: for each report, and about every 15 ms without one.
  using Decide = std::function<Decision(const std::optional<Report>&)>;

  // Divides the world's ranks into groups of ranks_a_group; the last group also takes the remaining ranks. Needs
  // MPI_THREAD_MULTIPLE. Keeps a reference to world. Collective over the world.
  TaskDispatcher(const Communicator& world, int ranks_a_group, Decide decide);
  ~TaskDispatcher();  // local
  TaskDispatcher(const TaskDispatcher&) = delete;
  TaskDispatcher& operator=(const TaskDispatcher&) = delete;

  struct Team {
    std::size_t task = 0;
    Communicator ranks;  // in order of world rank
  };
  // Sleeps until this group is part of a team; std::nullopt: no task will begin any more. outcome: that of the previous
  // team, whose task has ended. Collective over the group; then over the team.
  std::optional<Team> next(const std::optional<Team>& ended = {}, std::uint64_t outcome = 0);

  static int num_groups(int num_ranks, int ranks_a_group);

 private:
  void serve() noexcept;
  void send_start(const Start& start) const;
  int first_rank(int group) const { return group * ranks_a_group_; }

  const Communicator& world_;
  const int ranks_a_group_, num_groups_;
  const Communicator messages_, group_;
  const Decide decide_;
  std::atomic<bool> stop_{false};
  std::thread server_;  // on rank 0
};

}  // namespace magister
