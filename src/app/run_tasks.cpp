// In turn, or by list scheduling over parts of the world (decision 039).
#include "app/run_tasks.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "app/faults.h"
#include "app/task_graph.h"
#include "magister/core/log.h"
#include "magister/parallel/task_states.h"

namespace magister {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kMostOpen = 8;
constexpr std::chrono::milliseconds kLook{20};  // between looks for a task whose needs are met

// What became of a task. Of one that ran: 1 + its exit code.
enum Outcome : std::uint64_t { kNotEnded = 0, kSkipped = 1000 };
std::uint64_t outcome_of(ExitCode code) { return 1 + static_cast<std::uint64_t>(code); }
bool is_done(std::uint64_t outcome) { return outcome == outcome_of(ExitCode::kDone); }
bool is_stopped(std::uint64_t outcome) { return outcome == outcome_of(ExitCode::kStopped); }
bool has_failed(std::uint64_t outcome) { return outcome != kNotEnded && !is_done(outcome) && !is_stopped(outcome); }

// The tasks of a run and what became of them, the same on every rank between stages.
class TaskRuns {
 public:
  TaskRuns(const Invocation& call, const Experiment& experiment, RunLog& log, bool fresh)
      : call_(call),
        experiment_(experiment),
        log_(log),
        needs_(needs_of(experiment)),
        failed_(call.world.duplicate()),
        open_(call, experiment, log, fresh, {}),
        outcomes_(needs_.size(), kNotEnded) {}

  ExitCode run() {
    const int groups = std::max(call_.world.size() / open_.ranks_a_group(), 1);
    const int at_once = experiment_.config().run.at_once;
    for (const TaskStage& stage : stages_of(needs_, at_once > 0 ? std::min(at_once, groups) : groups)) {
      stage.parts == 1 ? run_in_turn(stage) : run_at_once(stage);
      if (std::any_of(outcomes_.begin(), outcomes_.end(), is_stopped)) return ExitCode::kStopped;
    }
    return summed_up();
  }

 private:
  const std::string& name(std::size_t i) const { return experiment_.tasks()[i]->name(); }

  // The first of what a task needs that has failed or was left out.
  std::optional<std::size_t> missing(std::size_t i, const std::vector<std::uint64_t>& outcomes) const {
    for (const std::size_t j : needs_[i]) {
      if (has_failed(outcomes[j])) return j;
    }
    return std::nullopt;
  }

  std::uint64_t skip(std::size_t i, std::size_t because, RunLog& log) const {
    log_warning("{}: is left out, for it needs {} (which {}); run the same command again when that is mended", name(i),
                name(because), outcomes_[because] == kSkipped ? "was left out itself" : "has failed");
    log.event("task_skipped", {{"task", name(i)}, {"needs", name(because)}});
    return kSkipped;
  }

  // Opens and runs a task. failed: a communicator of the ranks that do, for this alone. Collective over them.
  template <typename Open>
  std::uint64_t run_one(std::size_t i, const Communicator& failed, RunLog& log, const Open& open) {
    const Task& task = *experiment_.tasks()[i];
    const auto begin = Clock::now();
    log.event("task", {{"task", task.name()},
                       {"kind", task.kind()},
                       {"results", experiment_.results_path(i)},
                       {"ranks", failed.size()}});
    ExitCode code = ExitCode::kDone;
    try {
      OpenTask opened = open();
      code = opened.runner->run();
    } catch (const std::exception& error) {
      const Fault fault = fault_of(error);
      code = fault.code;
      if (code == ExitCode::kStopped) {  // by all ranks together where a task was asked to stop outside of its loop
        log_info("{}: stopped cleanly before its first unit; run the same command again", task.name());
      } else {
        log.event("error", {{"task", task.name()}, {"message", fault.message}, {"exit_code", static_cast<int>(code)}});
        code = settle(failed, fault);
      }
    }
    log.event("task_end", {{"task", task.name()},
                           {"exit_code", static_cast<int>(code)},
                           {"seconds", std::chrono::duration<double>(Clock::now() - begin).count()}});
    return outcome_of(code);
  }

  void run_in_turn(const TaskStage& stage) {
    for (const std::size_t i : stage.tasks) {
      leave_if_stopped(call_.world, call_.stop);
      if (const auto because = missing(i, outcomes_)) {
        open_.drop(i);
        outcomes_[i] = skip(i, *because, log_);
        continue;
      }
      outcomes_[i] = run_one(i, failed_, log_, [&] { return open_.take(i); });
      if (is_stopped(outcomes_[i])) return;
    }
  }

  void run_at_once(const TaskStage& stage);
  std::optional<std::size_t> next_of(const std::vector<std::size_t>& order, TaskStates& states, RunLog& log,
                                     bool& over);

  // Exit code, and one line on what is missing where something is.
  ExitCode summed_up() const {
    ExitCode code = ExitCode::kDone;
    std::vector<std::string> failed, skipped;
    std::size_t done = 0;
    for (std::size_t i = 0; i < outcomes_.size(); ++i) {
      done += is_done(outcomes_[i]) ? 1 : 0;
      if (outcomes_[i] == kSkipped) {
        skipped.push_back(name(i));
      } else if (has_failed(outcomes_[i])) {
        if (failed.empty()) code = static_cast<ExitCode>(outcomes_[i] - 1);
        failed.push_back(fmt::format("{} ({})", name(i), outcomes_[i] - 1));
      }
    }
    if (outcomes_.size() > 1 && !failed.empty()) {
      log_error("{} of {} tasks are done; failed: {}{}", done, outcomes_.size(), fmt::join(failed, ", "),
                skipped.empty() ? "" : fmt::format("; left out, for they need those: {}", fmt::join(skipped, ", ")));
    }
    return code;
  }

  const Invocation& call_;
  const Experiment& experiment_;
  RunLog& log_;
  const TaskNeeds needs_;
  const Communicator failed_;
  OpenTasks open_;
  std::vector<std::uint64_t> outcomes_;
};

// The next task whose needs are met, begun by this caller; what needs a failed one is ended as skipped. None: all that remain wait, or, with
// `over`, none remains or the job stops.
std::optional<std::size_t> TaskRuns::next_of(const std::vector<std::size_t>& order, TaskStates& states, RunLog& log,
                                             bool& over) {
  over = true;
  const std::vector<TaskStates::State> now = states.read();
  for (const std::size_t i : order) outcomes_[i] = now[i].outcome;
  if (call_.stop.raised() || std::any_of(outcomes_.begin(), outcomes_.end(), is_stopped)) return std::nullopt;
  for (const std::size_t i : order) {
    if (now[i].begun) continue;
    const bool ready =
        std::all_of(needs_[i].begin(), needs_[i].end(), [&](std::size_t j) { return is_done(outcomes_[j]); });
    if (const auto because = missing(i, outcomes_)) {
      if (states.begin(i)) states.end(i, skip(i, *because, log));
    } else if (ready && states.begin(i)) {
      return i;
    }
    over = false;
  }
  return std::nullopt;
}

// Every part of the world takes tasks until none remains; its first rank chooses. Collective over the world.
void TaskRuns::run_at_once(const TaskStage& stage) {
  open_.close();
  leave_if_stopped(call_.world, call_.stop);
  const Communicator& world = call_.world;
  // Whole groups; a remainder of ranks that fill none goes with the last part.
  const int a_group = open_.ranks_a_group(), groups = std::max(world.size() / a_group, 1);
  const int group = std::min(world.rank() / a_group, groups - 1);
  const int part_index = static_cast<int>(static_cast<std::int64_t>(group) * stage.parts / groups);
  const Communicator part = world.split(part_index, world.rank());
  const Communicator failed = part.duplicate();
  TaskStates states(world, experiment_.tasks().size());
  const bool leads = part.rank() == 0;
  // A line is one write to the end of the file. On rank 0 the file is open already.
  const auto own_log = leads && world.rank() != 0
                           ? std::make_unique<RunLog>(experiment_.config().folder() + "/run.jsonl")
                           : std::make_unique<RunLog>();
  RunLog& log = world.rank() == 0 ? log_ : *own_log;
  set_log_identity(part.rank(), part.size());
  const std::vector<std::size_t> order = longest_first(stage, needs_, open_.costs());
  while (true) {
    std::int64_t chosen = -1;
    for (bool over = !leads; !over;) {
      if (const auto next = next_of(order, states, log, over)) {
        chosen = static_cast<std::int64_t>(*next);
        break;
      }
      if (!over) std::this_thread::sleep_for(kLook);
    }
    part.wait_for_all();  // sleeps
    part.broadcast(&chosen, sizeof chosen, 0);
    if (chosen < 0) break;
    const auto i = static_cast<std::size_t>(chosen);
    const std::uint64_t outcome = run_one(i, failed, log, [&] { return open_.open_over(part, log, i); });
    if (leads) states.end(i, outcome);
  }
  set_log_identity(world.rank(), world.size());
  world.wait_for_all();
  const std::vector<TaskStates::State> ended = states.read();
  for (const std::size_t i : stage.tasks) outcomes_[i] = ended[i].outcome;
  // What nobody began was in the way of a stop.
  if (world.max(std::uint64_t{call_.stop.raised() ? 1u : 0u}) != 0) {
    for (const std::size_t i : stage.tasks) {
      if (outcomes_[i] == kNotEnded) outcomes_[i] = outcome_of(ExitCode::kStopped);
    }
  }
  world.wait_for_all();
  states.free();
}

}  // namespace

OpenTasks::OpenTasks(const Invocation& call, const Experiment& experiment, RunLog& log, bool fresh,
                     std::optional<int> plan_ranks)
    : call_(call), experiment_(experiment), log_(log), fresh_(fresh), plan_ranks_(plan_ranks) {
  using Earlier = RunContext::Earlier;
  for (std::size_t i = 0; i < experiment.tasks().size(); ++i) {
    OpenTask task = opened(call.world, log, i, plan_ranks ? Earlier::kOnDisk : Earlier::kAwaited, false);
    ranks_a_group_ = std::max(ranks_a_group_, task.runner->ranks_a_group());
    costs_.push_back(task.runner->cost());
    shares_.push_back({task.runner->threads_per_shard(), task.runner->host_shards()});
    open_.push_back(i < kMostOpen ? std::move(task) : OpenTask{});
  }
}

OpenTask OpenTasks::take(std::size_t i) {
  OpenTask task = std::move(open_[i]);
  if (task.runner != nullptr && (plan_ranks_ || !task.runner->awaits_earlier())) return task;
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
  RunContext context{*task.ranks,
                     experiment_.config(),
                     experiment_.results_path(i),
                     experiment_.resolved_yaml_of_task(i),
                     experiment_.config_yaml_of_task(i),
                     fresh_,
                     call_.stop,
                     log,
                     {},
                     earlier};
  for (std::size_t j = 0; j < i; ++j) context.earlier_tasks.push_back(experiment_.tasks()[j].get());
  if (divided) {
    context.most_threads = shares_[i].threads;
    context.shards_on_host = shares_[i].shards_on_host;
  }
  task.runner = std::make_unique<TaskRunner>(*experiment_.tasks()[i], std::move(context), plan_ranks_);
  return task;
}

ExitCode run_tasks(const Invocation& call, const Experiment& experiment, RunLog& log, bool fresh) {
  return TaskRuns(call, experiment, log, fresh).run();
}

}  // namespace magister
