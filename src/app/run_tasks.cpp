// Runs tasks in turn, or by list scheduling over parts of the world (decision 039).
#include "app/run_tasks.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "app/faults.h"
#include "app/open_tasks.h"
#include "app/task_graph.h"
#include "magister/core/log.h"
#include "magister/parallel/exchange.h"
#include "magister/parallel/task_dispatcher.h"

namespace magister {
namespace {

using Clock = std::chrono::steady_clock;

// The outcome of a task; for one that ran: 1 + its exit code.
enum Outcome : std::uint64_t { kNotEnded = 0, kSkipped = 1000 };
std::uint64_t outcome_of(ExitCode code) { return 1 + static_cast<std::uint64_t>(code); }
bool is_done(std::uint64_t outcome) { return outcome == outcome_of(ExitCode::kDone); }
bool is_stopped(std::uint64_t outcome) { return outcome == outcome_of(ExitCode::kStopped); }
bool has_failed(std::uint64_t outcome) { return outcome != kNotEnded && !is_done(outcome) && !is_stopped(outcome); }

// The tasks of a run and their outcomes. While several tasks run at the same time, only rank 0 knows the outcomes.
class TaskRuns {
 public:
  TaskRuns(const Invocation& call, const Experiment& experiment, RunLog& log, Monitor& monitor,
           const std::string& start, bool fresh, RunLocks& locks)
      : call_(call),
        experiment_(experiment),
        log_(log),
        start_(start),
        locks_(locks),
        needs_(needs_of(experiment)),
        failed_(call.world.duplicate()),
        open_(call, experiment, log, fresh, OpenTasks::Run{locks, monitor}),
        outcomes_(needs_.size(), kNotEnded) {}

  ExitCode run() {
    may_run_at_once() ? run_at_once() : run_in_turn();
    return std::any_of(outcomes_.begin(), outcomes_.end(), is_stopped) ? ExitCode::kStopped : summed_up();
  }

 private:
  class Decisions;

  const std::string& name(std::size_t i) const { return experiment_.tasks()[i]->name(); }
  std::string log_path() const { return experiment_.config().folder() + "/run.jsonl"; }
  int num_groups() const { return TaskDispatcher::num_groups(call_.world.size(), open_.ranks_a_group()); }

  // The same on all ranks, since MPI was initialised the same way on all.
  bool may_run_at_once() const {
    if (!may_overlap(needs_, num_groups(), experiment_.config().run.at_once)) return false;
    if (threads_may_exchange()) return true;
    log_warning(
        "tasks run one after the other, each over all ranks (this MPI does not let threads communicate, and rank 0 "
        "cannot "
        "tell groups what to do while it computes); use an Open MPI with UCX, or write run.at_once: 1");
    return false;
  }

  // The first of the tasks that task i needs which has failed or was left out.
  std::optional<std::size_t> missing(std::size_t i) const {
    for (const std::size_t j : needs_[i]) {
      if (has_failed(outcomes_[j])) return j;
    }
    return std::nullopt;
  }

  std::uint64_t skip(std::size_t i, std::size_t because, RunLog& log) const {
    log_warning("{}: is left out, for it needs {} (which {}); run the same command again when that is corrected",
                name(i), name(because), outcomes_[because] == kSkipped ? "was left out itself" : "has failed");
    log.event("task_skipped", {{"task", name(i)}, {"needs", name(because)}});
    return kSkipped;
  }

  // Opens and runs a task. failed: a communicator of the ranks that do so, used for this only. Collective over them.
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
      code = opened.step->run();
    } catch (const std::exception& error) {
      const Fault fault = fault_of(error);
      code = fault.code;
      if (code == ExitCode::kStopped) {  // all ranks stopped together outside of the task's own loop
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

  void run_in_turn() {
    for (std::size_t i = 0; i < outcomes_.size(); ++i) {
      leave_if_stopped(call_.world, call_.stop);
      const auto because = missing(i);
      if (because) open_.drop(i);
      outcomes_[i] = because ? skip(i, *because, log_) : run_one(i, failed_, log_, [&] { return open_.take(i); });
      locks_.release(i);
      if (is_stopped(outcomes_[i])) return;
    }
  }

  void run_at_once();

  // Returns the exit code, and logs one line about tasks that are not done, if there are any.
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
  const std::string start_;
  RunLocks& locks_;
  const TaskNeeds needs_;
  const Communicator failed_;
  OpenTasks open_;
  std::vector<std::uint64_t> outcomes_;
};

// Rank 0's part of run_at_once(): it takes reports and decides what begins next.
class TaskRuns::Decisions {
 public:
  Decisions(TaskRuns& runs, int num_groups)
      : runs_(runs),
        schedule_(runs.needs_, runs.open_.sizes(), num_groups, runs.experiment_.config().run.at_once),
        log_(runs.log_path(), runs.start_) {}

  TaskDispatcher::Decision operator()(const std::optional<TaskDispatcher::Report>& report) {
    if (report) {
      if (report->task) end(*report->task, report->outcome);
      schedule_.group_is_free(report->group);
    }
    if (stopped_ || runs_.call_.stop.raised() || schedule_.all_begun()) return {{}, true};
    TaskDispatcher::Decision decision;
    for (TaskSchedule::Start& start : schedule_.begin())
      decision.starts.push_back({start.task, std::move(start.groups)});
    return decision;
  }

 private:
  void end(std::size_t task, std::uint64_t outcome) {
    runs_.outcomes_[task] = outcome;
    runs_.locks_.release(task);
    stopped_ = stopped_ || is_stopped(outcome);
    schedule_.task_ended(task, is_done(outcome));
    if (stopped_) return;
    for (const auto& [left_out, because] : schedule_.take_left_out()) {
      runs_.outcomes_[left_out] = runs_.skip(left_out, because, log_);
      runs_.locks_.release(left_out);
    }
  }

  TaskRuns& runs_;
  TaskSchedule schedule_;
  RunLog log_;  // each line is a single write at the end of the file
  bool stopped_ = false;
};

// Collective over the world.
void TaskRuns::run_at_once() {
  open_.close();
  const Communicator& world = call_.world;
  leave_if_stopped(world, call_.stop);
  std::optional<Decisions> decisions;
  if (world.rank() == 0) decisions.emplace(*this, num_groups());
  {
    TaskDispatcher dispatcher(world, open_.ranks_a_group(), [&](const auto& report) { return (*decisions)(report); });
    RunLog silent;
    std::uint64_t outcome = kNotEnded;
    for (std::optional<TaskDispatcher::Team> team = dispatcher.next(); team;) {
      const bool leads = team->ranks.rank() == 0;
      const auto log = leads && world.rank() != 0 ? std::make_unique<RunLog>(log_path(), start_) : nullptr;
      set_log_identity(team->ranks.rank(), team->ranks.size());
      RunLog& events = !leads ? silent : log ? *log : log_;
      outcome = run_one(team->task, team->ranks.duplicate(), events,
                        [&] { return open_.open_over(team->ranks, events, team->task); });
      team = dispatcher.next(team, outcome);
    }
    set_log_identity(world.rank(), world.size());
    world.wait_for_all();
  }
  world.broadcast(outcomes_.data(), outcomes_.size() * sizeof outcomes_[0], 0);
  // Tasks that did not begin were prevented by a stop.
  std::replace(outcomes_.begin(), outcomes_.end(), std::uint64_t{kNotEnded}, outcome_of(ExitCode::kStopped));
}

}  // namespace

ExitCode run_tasks(const Invocation& call, const Experiment& experiment, RunLog& log, Monitor& monitor,
                   const std::string& start, bool fresh, RunLocks& locks) {
  return TaskRuns(call, experiment, log, monitor, start, fresh, locks).run();
}

}  // namespace magister
