// Decides which tasks of an experiment run when, and on how many GPU groups. It decides whenever groups become free,
// without a clock and without MPI.
#pragma once

#include <cstddef>
#include <set>
#include <utility>
#include <vector>

#include "magister/app/experiment.h"

namespace magister {

// For each task the indices of the earlier tasks that it needs.
using TaskNeeds = std::vector<std::vector<std::size_t>>;
TaskNeeds needs_of(const Experiment& experiment);
// True if every task needs, directly or through others, all tasks before it: no two can run at the same time.
bool is_chain(const TaskNeeds& needs);
// True if tasks may run at the same time; otherwise they run in turn, each over all ranks. at_once: run.at_once.
bool may_overlap(const TaskNeeds& needs, int num_groups, int at_once);

// List scheduling of tasks of which some can use several groups. A free group takes the ready task with the longest
// chain of tasks that need it. Groups for which no task is left go to the tasks that begin at that moment, and a task
// that is more than its share of the ready work gets more than one group. So no group waits while a task is ready, and
// no task ends long after all others. Graham (1969): with one group per task the time is at most twice the best; with
// many short tasks it is nearly the best.
class TaskSchedule {
 public:
  struct Task {
    double cost = 0;      // in any unit; a wrong one only costs time
    int most_groups = 1;  // more groups would have no work
  };
  // most_at_once: most tasks at a time; 0: as many as there are groups. All groups are busy until group_is_free().
  TaskSchedule(const TaskNeeds& needs, const std::vector<Task>& tasks, int num_groups, int most_at_once);

  // The groups of a team, or at first all groups, report within milliseconds. Nothing begins in between, so that the
  // ready tasks can use all of them.
  void group_is_free(int group);
  // done false: the tasks that need it are left out.
  void task_ended(std::size_t task, bool done);

  struct Start {
    std::size_t task = 0;
    std::vector<int> groups;  // ascending
  };
  // Returns the tasks to start now and takes their groups.
  std::vector<Start> begin();
  struct LeftOut {
    std::size_t task = 0, because = 0;  // because: the needed task that has failed or is left out itself
  };
  // The tasks left out since the last call, in order.
  std::vector<LeftOut> take_left_out() { return std::exchange(left_out_, {}); }
  // True if no task waits any more.
  bool all_begun() const { return num_waiting_ == 0; }

 private:
  void add_ready(std::size_t task);
  std::size_t pop_ready();
  std::vector<std::size_t> take_tasks();
  std::vector<int> widths(const std::vector<std::size_t>& tasks) const;
  void leave_out(std::size_t task);

  const std::vector<Task> tasks_;
  const std::size_t most_at_once_;
  std::vector<double> chain_cost_;  // cost of a task plus that of the longest chain of tasks that need it
  std::vector<std::vector<std::size_t>> needed_by_;
  std::vector<std::size_t> unmet_;  // number of needed tasks that have not ended
  std::vector<bool> out_;
  std::vector<std::size_t> team_of_;  // for each group its last task; at first the number of tasks
  std::vector<std::size_t> team_size_, team_free_;
  int num_leaving_ = 0;                             // number of teams of which only some groups are free
  std::set<std::pair<double, std::size_t>> ready_;  // sorted by -chain_cost_: the first begins first
  double ready_cost_ = 0;
  std::set<int> free_;
  std::vector<LeftOut> left_out_;
  std::size_t num_waiting_, num_running_ = 0;
};

// A task in the order in which tasks begin.
struct PlannedStart {
  std::size_t task = 0;
  int groups = 1;
  double begin = 0;  // in the unit of the costs
};
// The result of that schedule if tasks take as long as their costs and divide over groups without loss; in turn if none
// may overlap.
std::vector<PlannedStart> planned_order(const TaskNeeds& needs, const std::vector<TaskSchedule::Task>& tasks,
                                        int num_groups, int at_once);

}  // namespace magister
