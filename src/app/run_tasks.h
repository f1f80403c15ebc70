// The tasks of an experiment from their opening to their ends: one after the other, or several at once, each over a part of the world.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "app/commands.h"
#include "magister/app/experiment.h"
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
  // plan_ranks: of a plan, which takes what stands on disk. All are kept by reference. Collective over the world.
  OpenTasks(const Invocation& call, const Experiment& experiment, RunLog& log, bool fresh,
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
  // What a task computes, roughly: only to begin with what takes longest.
  const std::vector<double>& costs() const { return costs_; }

 private:
  OpenTask opened(const Communicator& ranks, RunLog& log, std::size_t i, RunContext::Earlier earlier,
                  bool divided) const;

  const Invocation& call_;
  const Experiment& experiment_;
  RunLog& log_;
  const bool fresh_;
  const std::optional<int> plan_ranks_;
  std::vector<OpenTask> open_;  // null: closed again
  int ranks_a_group_ = 1;
  std::vector<double> costs_;
  struct Share {
    int threads = 0, shards_on_host = 0;
  };
  std::vector<Share> shares_;  // of a shard of each task on this rank, when all ranks compute
};

// Runs what is not there yet. kDone, or the code of the first task, in the experiment's order, that failed: a task that fails on all ranks that
// work at it ends neither the others nor the job, and what needs it is left out, by name; one that fails on some ranks alone ends the job.
// kStopped when the job was asked to stop. Collective over the world.
ExitCode run_tasks(const Invocation& call, const Experiment& experiment, RunLog& log, bool fresh);

}  // namespace magister
