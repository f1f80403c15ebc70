// The tasks of an experiment, opened and checked before anything computes.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "app/commands.h"
#include "app/run_locks.h"
#include "app/task_graph.h"
#include "magister/app/experiment.h"
#include "magister/model/weight_store.h"
#include "magister/run/run_log.h"
#include "magister/run/task_runner.h"

namespace magister {

// A task and the communicator of its own that it works with: what a fault leaves unfinished there disturbs nobody.
struct OpenTask {
  std::unique_ptr<Communicator> ranks;
  std::unique_ptr<TaskRunner> runner;
};

// Every task is opened and checked whole before the first one computes. An open task holds its tokenizer and the index of its records, some
// 100 MB with a large vocabulary; of a long experiment the first eight stay open, the others are opened again in their turn.
class OpenTasks {
 public:
  // locks: of a run; plan_ranks: of a plan, which takes what stands on disk. All are kept by reference. Collective over the world.
  OpenTasks(const Invocation& call, const Experiment& experiment, RunLog& log, bool fresh, const RunLocks* locks,
            std::optional<int> plan_ranks);

  // Once of each task, in order: those before it have run, or are only planned. Collective over the world.
  OpenTask take(std::size_t i);
  // The same over a part of the world, once those that it needs have run. Collective over `part`.
  OpenTask open_over(const Communicator& part, RunLog& log, std::size_t i) const;
  // In its place, of a task that is not run.
  void drop(std::size_t i) { open_[i] = {}; }
  // Closes what is open.
  void close();

  // Of the world's groups, the largest one's ranks.
  int ranks_a_group() const { return ranks_a_group_; }
  // What each computes, roughly: only to begin with what takes longest, and to give no task groups that find nothing to do.
  const std::vector<TaskSchedule::Task>& sizes() const { return sizes_; }

 private:
  OpenTask opened(const Communicator& ranks, RunLog& log, std::size_t i, RunContext::Earlier earlier,
                  bool divided) const;

  const Invocation& call_;
  const Experiment& experiment_;
  RunLog& log_;
  const bool fresh_;
  const RunLocks* const locks_;
  const std::optional<int> plan_ranks_;
  HostPlace place_;
  mutable WeightStore weights_;  // of a run
  std::vector<OpenTask> open_;   // null: closed again
  int ranks_a_group_ = 1;
  std::vector<TaskSchedule::Task> sizes_;
  std::vector<PartOfJob> parts_;  // of each task on this rank
};

}  // namespace magister
