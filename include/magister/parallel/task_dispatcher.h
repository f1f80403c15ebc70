// Gives tasks to teams of GPU groups as groups become free: an experiment's tasks that do not need each other run beside each other, and no rank
// waits for ranks that work at another task.
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
  // A group has nothing to do. Of the first group of a team also what became of the team's task.
  struct Report {
    int group = 0;
    std::optional<std::size_t> task;
    std::uint64_t outcome = 0;
  };
  struct Start {
    std::size_t task = 0;
    std::vector<int> groups;  // ascending, all of them free
  };
  struct Decision {
    std::vector<Start> starts;
    bool over = false;  // nothing will begin any more: groups that are free, or report from now on, leave
  };
  // On rank 0 alone, on a thread of its own: once for each report, and without one every 20 ms.
  using Decide = std::function<Decision(const std::optional<Report>&)>;

  // The world's ranks in groups of ranks_a_group; a remainder that fills none goes with the last. Needs MPI_THREAD_MULTIPLE. world is kept
  // by reference. Collective over the world.
  TaskDispatcher(const Communicator& world, int ranks_a_group, Decide decide);
  ~TaskDispatcher();  // local
  TaskDispatcher(const TaskDispatcher&) = delete;
  TaskDispatcher& operator=(const TaskDispatcher&) = delete;

  struct Team {
    std::size_t task = 0;
    Communicator ranks;  // by world rank
  };
  // Waits, sleeping, until this group is part of a team; nothing: all is over. outcome: of the team before, whose task has ended.
  // Collective over the group; then over the team.
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
