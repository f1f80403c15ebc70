// Opens tasks over the world or a part of it.
#include "app/open_tasks.h"

#include <algorithm>
#include <utility>

namespace magister {
namespace {

constexpr std::size_t kMostOpen = 8;

}  // namespace

OpenTasks::OpenTasks(const Invocation& call, const Experiment& experiment, RunLog& log, bool fresh,
                     const std::variant<Run, int>& purpose)
    : call_(call),
      experiment_(experiment),
      log_(log),
      fresh_(fresh),
      locks_(std::holds_alternative<Run>(purpose) ? &std::get<Run>(purpose).locks : nullptr),
      monitor_(std::holds_alternative<Run>(purpose) ? &std::get<Run>(purpose).monitor : nullptr),
      plan_ranks_(std::holds_alternative<int>(purpose) ? std::optional(std::get<int>(purpose)) : std::nullopt),
      place_(host_place(call.world)) {
  using Earlier = RunContext::Earlier;
  for (std::size_t i = 0; i < experiment.tasks().size(); ++i) {
    OpenTask task = opened(call.world, log, i, plan_ranks_ ? Earlier::kOnDisk : Earlier::kAwaited, false);
    const StepCost cost = task.step->cost();
    ranks_a_group_ = std::max(ranks_a_group_, cost.ranks_a_group);
    sizes_.push_back({cost.work, cost.most_groups});
    parts_.push_back({place_, cost.threads_per_shard, cost.host_shards, call.world.rank()});
    open_.push_back(i < kMostOpen ? std::move(task) : OpenTask{});
  }
}

OpenTask OpenTasks::take(std::size_t i) {
  OpenTask task = std::move(open_[i]);
  if (task.step != nullptr && (plan_ranks_ || !task.step->awaits_earlier())) return task;
  task = {};
  return opened(call_.world, log_, i, plan_ranks_ ? RunContext::Earlier::kOnDisk : RunContext::Earlier::kMade, false);
}

OpenTask OpenTasks::open_over(const Communicator& part, RunLog& log, std::size_t i) const {
  return opened(part, log, i, RunContext::Earlier::kMade, true);
}

void OpenTasks::close() {
  for (OpenTask& task : open_) task = {};
}

OpenTask OpenTasks::opened(const Communicator& ranks, RunLog& log, std::size_t i, RunContext::Earlier earlier,
                           bool divided) const {
  OpenTask task{std::make_unique<Communicator>(ranks.duplicate()), nullptr};
  RunContext context{
      .world = *task.ranks,
      .experiment = experiment_.config(),
      .results_path = experiment_.results_path(i),
      .identity_yaml = experiment_.identity_yaml_of_task(i),
      .fresh = fresh_,
      .stop = call_.stop,
      .log = log,
      .earlier = earlier,
      .weights = plan_ranks_ ? nullptr : &weights_,
      .monitor = monitor_,
      .held = locks_ != nullptr && locks_->holds(i),
      .resolve = [this, i](RunContext& later) { later.identity_yaml = experiment_.identity_yaml_of_task(i); }};
  for (std::size_t j = 0; j < i; ++j) context.earlier_tasks.push_back(experiment_.tasks()[j].get());
  if (divided) context.part = parts_[i];
  task.step = experiment_.tasks()[i]->step(std::move(context), plan_ranks_);
  return task;
}

}  // namespace magister
