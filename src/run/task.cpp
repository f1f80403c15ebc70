// The defaults of all tasks; see task.h.
#include "magister/run/task.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "magister/core/error.h"
#include "magister/run/shard_model.h"
#include "magister/run/shard_threads.h"
#include "magister/run/task_runner.h"

namespace magister {

void TaskJob::work(const ModelRun& run) {
  run_shards(run.group, run.work.tickets, [&](std::unique_ptr<ProcessGroup> group, ShardPlace place) {
    worker({run, std::move(group), place})->run_units();
  });
}

std::unique_ptr<ShardWorker> TaskJob::worker(ShardContext) {
  MAGISTER_ASSERT(false);  // a task without workers overrides work()
  return nullptr;
}

std::vector<std::string> Task::needs() const {
  std::vector<std::string> names = {model_.task, dataset_.task}, unique;
  names.insert(names.end(), traits_.needs.begin(), traits_.needs.end());
  for (std::string& name : names) {
    if (!name.empty() && std::find(unique.begin(), unique.end(), name) == unique.end())
      unique.push_back(std::move(name));
  }
  return unique;
}

void Task::also_needs(std::vector<std::string> names) {
  traits_.needs.insert(traits_.needs.end(), std::make_move_iterator(names.begin()),
                       std::make_move_iterator(names.end()));
}

std::unique_ptr<Step> Task::step(RunContext context, std::optional<int> plan_ranks) {
  return std::make_unique<TaskRunner>(*this, std::move(context), plan_ranks);
}

// A task over units overrides both functions below; they are not called for a task with a step of its own.
PassShape Task::pass_shape(const PassLimits&) const {
  MAGISTER_ASSERT(false);
  return {};
}

std::unique_ptr<TaskJob> Task::open(const TaskInputs&) const {
  MAGISTER_ASSERT(false);
  return nullptr;
}

void Task::summarize(const RunContext&) const {
  fail(ExitCode::kUsage, "{}: a task of kind {} has no summary (there is nothing to write again); name another task",
       name_, kind_);
}

}  // namespace magister
