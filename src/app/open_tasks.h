// Opens the tasks of an experiment and checks them before anything computes.
#pragma once

#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "app/commands.h"
#include "app/run_locks.h"
#include "app/task_graph.h"
#include "magister/app/experiment.h"
#include "magister/model/weight_store.h"
#include "magister/run/run_log.h"
#include "magister/run/step.h"

namespace magister {

class Monitor;

// A task with its own communicator, so that messages which a fault leaves unfinished there disturb no other task.
struct OpenTask {
  std::unique_ptr<Communicator> ranks;
  std::unique_ptr<Step> step;
};

// Opens and checks every task before the first one computes. An open task holds its tokenizer and the index of its
// records, some 100 MB with a large vocabulary; so the first eight tasks stay open, and the others are opened again
// when they run.
class OpenTasks {
 public:
  struct Run {
    const RunLocks& locks;
    Monitor& monitor;
  };
  // purpose: a run, or a plan of that many ranks, which uses the earlier results on disk. Keeps references to all
  // objects. Collective over the world.
  OpenTasks(const Invocation& call, const Experiment& experiment, RunLog& log, bool fresh,
            const std::variant<Run, int>& purpose);

  // Hands out each task once, in order: earlier tasks have run, or are only planned. Collective over the world.
  OpenTask take(std::size_t i);
  // Opens a task over a part of the world, once the tasks that it needs have run. Collective over `part`.
  OpenTask open_over(const Communicator& part, RunLog& log, std::size_t i) const;
  // Called instead of take() for a task that is not run.
  void drop(std::size_t i) { open_[i] = {}; }
  // Closes all open tasks.
  void close();

  // Ranks of the largest group of the world.
  int ranks_a_group() const { return ranks_a_group_; }
  // A rough cost of each task and its largest useful number of groups. They decide only which task begins first and on
  // how many groups.
  const std::vector<TaskSchedule::Task>& sizes() const { return sizes_; }

 private:
  OpenTask opened(const Communicator& ranks, RunLog& log, std::size_t i, RunContext::Earlier earlier,
                  bool divided) const;

  const Invocation& call_;
  const Experiment& experiment_;
  RunLog& log_;
  const bool fresh_;
  const RunLocks* const locks_;  // null: a plan
  Monitor* const monitor_;       // null: a plan
  const std::optional<int> plan_ranks_;
  HostPlace place_;
  mutable WeightStore weights_;  // only in a run
  std::vector<OpenTask> open_;   // null: closed again
  int ranks_a_group_ = 1;
  std::vector<TaskSchedule::Task> sizes_;
  std::vector<PartOfJob> parts_;  // of each task on this rank
};

}  // namespace magister
