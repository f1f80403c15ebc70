// Which tasks of an experiment run when, and on how many GPU groups: decided as groups become free, with no clock and no MPI.
#pragma once

#include <cstddef>
#include <set>
#include <utility>
#include <vector>

#include "magister/app/experiment.h"

namespace magister {

// Of each task the numbers of the tasks before it that it needs.
using TaskNeeds = std::vector<std::vector<std::size_t>>;
TaskNeeds needs_of(const Experiment& experiment);
// Whether every task needs, through others, all tasks before it: none can run beside another.
bool is_chain(const TaskNeeds& needs);
// Whether some may run beside others; else they run in turn, each over all ranks. at_once: run.at_once.
bool may_overlap(const TaskNeeds& needs, int num_groups, int at_once);

// List scheduling of tasks of which some can use several groups. A group that is free takes the ready task with the longest chain behind it;
// groups for which no task is left go to the tasks that begin at that moment, and a task that is more than its share of the ready work has more
// than one, so that no group waits while a task is ready, and no task ends long after all others. Graham (1969): with one group a task at most
// twice the best, of many short tasks nearly the best.
class TaskSchedule {
 public:
  struct Task {
    double cost = 0;      // in any unit; a wrong one costs time alone
    int most_groups = 1;  // more would find nothing to do
  };
  // most_at_once: tasks that run at one time; 0: as many as there are groups. All groups are taken until they are said to be free.
  TaskSchedule(const TaskNeeds& needs, const std::vector<Task>& tasks, int num_groups, int most_at_once);

  // The groups of a team, or at first all, say so within milliseconds, and nothing begins in between: what is ready has all of them.
  void group_is_free(int group);
  // done false: what needs it is left out.
  void task_ended(std::size_t task, bool done);

  struct Start {
    std::size_t task = 0;
    std::vector<int> groups;  // ascending
  };
  // Takes the groups.
  std::vector<Start> begin();
  struct LeftOut {
    std::size_t task = 0, because = 0;  // what it needs has failed or is left out itself
  };
  // Since the last call, in order.
  std::vector<LeftOut> take_left_out() { return std::exchange(left_out_, {}); }
  // No task waits any more.
  bool all_begun() const { return num_waiting_ == 0; }

 private:
  void add_ready(std::size_t task);
  std::size_t pop_ready();
  std::vector<std::size_t> take_tasks();
  std::vector<int> widths(const std::vector<std::size_t>& tasks) const;
  void leave_out(std::size_t task);

  const std::vector<Task> tasks_;
  const std::size_t most_at_once_;
  std::vector<double> behind_;  // cost of a task and of the longest chain that needs it
  std::vector<std::vector<std::size_t>> needed_by_;
  std::vector<std::size_t> unmet_;  // tasks that it waits for
  std::vector<bool> out_;
  std::vector<std::size_t> team_of_;  // of each group the task that it worked at; at first the number of tasks
  std::vector<std::size_t> team_size_, team_free_;
  int num_leaving_ = 0;                             // teams of which some are free
  std::set<std::pair<double, std::size_t>> ready_;  // by -behind: first is first
  double ready_cost_ = 0;
  std::set<int> free_;
  std::vector<LeftOut> left_out_;
  std::size_t num_waiting_, num_running_ = 0;
};

// A task in the order in which they begin.
struct PlannedStart {
  std::size_t task = 0;
  int groups = 1;
  double begin = 0;  // in the unit of the costs
};
// What that schedule makes of tasks that take as long as their costs say and divide over groups without loss; in turn where none may overlap.
std::vector<PlannedStart> planned_order(const TaskNeeds& needs, const std::vector<TaskSchedule::Task>& tasks,
                                        int num_groups, int at_once);

}  // namespace magister
