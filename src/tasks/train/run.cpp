// See run.h. Every decision, such as the next step or a stop, depends only on what all ranks know.
#include "tasks/train/run.h"

#include <ATen/ATen.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "magister/core/error.h"
#include "magister/core/fail_point.h"
#include "magister/core/log.h"
#include "magister/monitor/monitor.h"
#include "magister/parallel/exchange.h"
#include "magister/parallel/failed_together.h"
#include "magister/run/results_on_disk.h"
#include "magister/run/run_log.h"
#include "magister/train/checkpoint.h"
#include "magister/train/gradient_tree.h"
#include "magister/train/state_writer.h"
#include "tasks/train/objective.h"
#include "tasks/train/samples.h"

namespace magister {
namespace {

constexpr std::uint64_t kMostSkipped = 3;  // skipped steps in a row
constexpr double kSecondsOfALine = 30;     // time between two lines; with --verbose every step has one

using Clock = std::chrono::steady_clock;

class Training {
 public:
  Training(const ModelRun& run, const TrainingWork& work, const PlanNumbers& numbers)
      : run_(run),
        work_(work),
        world_(work.context.world),
        failed_(world_.duplicate()),
        data_(run.file, numbers.num_samples, work.config),
        plan_(data_.lengths(), work.config.batches),
        steps_(work.config.updates(plan_.num_steps())),
        trainer_(load()),
        states_(work.states, trainer_, work.identity, work.config.keep, work.shape.copies_states),
        inputs_{run, world_, data_, trainer_, work.held_out, [this] { return stop_agreed(); }},
        curves_of_steps_(work.config.objective().curves(work.config)),
        curves_of_held_out_(*work.config.objective().held_out_curves) {
    work.open.check_learns(plan_.num_samples(), data_.num_items(), numbers.longest_sample);
    if (is_root() && plan_.num_samples() < data_.num_items()) {
      log_warning("{}: {} of {} records have {} and take no part", work.config.name,
                  data_.num_items() - plan_.num_samples(), data_.num_items(),
                  work.config.of_pairs() ? "an answer without a token to learn from, or longer than train.max_length"
                                         : "no token to learn from");
    }
    if (is_root() && work.config.warmup_steps(steps_) >= steps_) {
      log_warning("{}: train.optimizer.warmup takes all {} steps, so the learning rate never reaches {}; lower it",
                  work.config.name, steps_, work.config.trainer.optimizer.lr);
    }
  }
  ~Training() { work_.open.end_steps(); }
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  void close() { trainer_.close(); }

  void run() {
    try {
      run_all();
    } catch (...) {
      keep_state();
      throw;
    }
  }

 private:
  void run_all() {
    if (!work_.open.begin_steps(inputs_)) return;
    resume();
    run_.work.steps = {curves_.step, steps_, 0};
    log_steps("steps", curves_.step);
    const bool is_complete = run_steps();
    wait_for_state();
    if (!is_complete || !run_.group.is_leader()) return;
    UnitWriter writer(run_.file, run_.work.tickets);
    while (const auto index = run_.work.tickets.claim()) writer.submit(run_.file.unit(*index), {});
    writer.drain();
  }

  // Where all ranks have met an error together, such as a loss that is not finite, their state under way is finished
  // before they say so. The error of some ends the job, which has a few seconds for that: states_ gives the state up.
  void keep_state() {
    if (!all_failed(failed_)) return;
    run_.work.live_together("save", static_cast<std::int64_t>(curves_.step));
    try {
      states_.wait();
    } catch (const std::exception& error) {
      log_warning("{}", error.what());
    }
    failed_.wait_for_all();
    log_states();
  }

  bool is_root() const { return world_.rank() == 0; }

  // False: the job was asked to stop. The last state may be under way.
  bool run_steps() {
    const std::uint64_t every = work_.config.save_every;
    while (curves_.step < steps_) {
      // States do not hold texts. So a state is saved only before the first of the updates that learn from the same
      // texts.
      const bool at_border = curves_.step % iterations() == 0;
      // saved before the evaluation, which may take long
      if (at_border && curves_.step / every != saved_ / every) save();
      if (!evaluate()) return false;
      if ((at_border && stop_agreed()) || !step()) {
        save();
        return false;
      }
      states_.collect();
      log_states();
    }
    save();
    if (!evaluate()) return false;
    save();  // has the last held-out loss
    return true;
  }

  Trainer load() const {
    const PhaseTimes::Span span(run_.times, "load");
    run_.work.live_together("load the model");
    TrainerOptions options = work_.config.trainer;
    options.fast_sums = run_.group.fast_collectives();
    options.new_head = work_.new_head;
    options.gpu = run_.model.gpu;
    options.sums_on_gpu = work_.shape.sums_on_gpu;
    options.optimizer_on_gpu = work_.shape.optimizer_on_gpu;
    options.gpus_exchange = work_.shape.gpus_exchange;
    options.recompute = work_.shape.recompute;
    options.passes_at_once = work_.passes_at_once;
    return Trainer(work_.layout, work_.weights, options, world_, run_.group.threads_per_shard());
  }

  bool stop_agreed() const { return world_.max(std::uint64_t{run_.stop_wanted() ? 1u : 0u}) != 0; }

  // Number of updates from the same texts; 1 for objectives other than GRPO.
  std::uint64_t iterations() const { return work_.config.grpo.num_iterations; }
  double factor(std::uint64_t step) const {
    return lr_factor(work_.config.schedule, step, work_.config.warmup_steps(steps_), steps_);
  }

  void resume() {
    run_.work.live_together("read the newest state");
    LoadedState state = load_training_state(work_.states, trainer_, work_.identity, curves_of_steps_.width);
    const std::string path = state.path;
    if (path.empty()) return;
    curves_ = std::move(state.curves);
    put_damaged_aside(state);
    MAGISTER_CHECK(curves_.step <= steps_ && (curves_.step % iterations() == 0 || curves_.step == steps_),
                   ExitCode::kData, "{}: is of step {}, and there are {} steps; remove this file", printable(path),
                   curves_.step, steps_);
    const std::uint64_t due = evaluations_due();
    const auto width = static_cast<std::uint64_t>(curves_of_held_out_.width);
    MAGISTER_CHECK(
        curves_.evaluations.size() % width == 0 && (num_evaluated() == due || (is_due() && num_evaluated() + 1 == due)),
        ExitCode::kData, "{}: holds {} held-out losses, and {} are due after step {}; remove this file",
        printable(path), num_evaluated(), due, curves_.step);
    saved_ = curves_.step;
    saved_evaluations_ = curves_.evaluations.size();
    if (is_root()) log_info("{}: continues after step {} of {}", work_.config.name, curves_.step, steps_);
  }

  // Damaged states are renamed, not removed, so that they can be examined.
  void put_damaged_aside(const LoadedState& state) {
    if (!is_root()) return;
    for (const LoadedState::Damaged& damaged : state.damaged) {
      log_warning("{}: {} (training cannot continue from it); it is set aside, and the run continues from {}",
                  printable(damaged.path, 4096), damaged.problem, printable(state.path, 4096));
      put_path_aside(damaged.path);
    }
  }

  std::uint64_t evaluations_due() const {
    return work_.held_out != nullptr ? num_evaluations(curves_.step, work_.config.evaluate->every, steps_) : 0;
  }
  std::uint64_t num_evaluated() const {
    return curves_.evaluations.size() / static_cast<std::uint64_t>(curves_of_held_out_.width);
  }
  // True: an evaluation belongs to the current number of steps.
  bool is_due() const {
    return work_.held_out != nullptr && (curves_.step % work_.config.evaluate->every == 0 || curves_.step == steps_);
  }

  // Computes the held-out loss if it is due. False: the job was asked to stop, and a state without it was begun.
  bool evaluate() {
    if (num_evaluated() == evaluations_due()) return true;
    states_.collect();  // an evaluation may take long
    const PhaseTimes::Span span(run_.times, "evaluate");
    const auto number = static_cast<std::int64_t>(curves_.step);
    const auto heartbeat = [&] { run_.work.live_together("evaluate", number); };  // also called by threads of the pool
    heartbeat();
    const std::optional<Evaluation> found =
        work_.held_out->evaluate(trainer_, [this] { return stop_agreed(); }, heartbeat);
    if (!found) {
      save();
      return false;
    }
    const std::vector<float> numbers = found->numbers(curves_of_held_out_.width);
    curves_.evaluations.insert(curves_.evaluations.end(), numbers.begin(), numbers.end());
    if (is_root()) log_evaluation(*found);
    return true;
  }

  void log_evaluation(const Evaluation& found) {
    nlohmann::ordered_json event = {{"task", work_.config.name}, {"step", curves_.step}, {"eval_loss", found.loss}};
    log_info("{}: step {}/{}, eval_loss {:.4f}{}", work_.config.name, curves_.step, steps_, found.loss,
             curves_of_held_out_.describe_held_out(found, work_.held_out->num_labels(), event));
    work_.context.log.event("evaluation", event);
  }

  // False: the job was asked to stop before the update.
  bool step() {
    const auto number = static_cast<std::int64_t>(curves_.step);
    run_.work.live_together("train", number);
    fail_point("train.step.begin");
    if (work_.config.of_prompts()) states_.collect();  // so may texts
    const std::optional<StepBatches> batches =
        work_.open.batches(inputs_, curves_.step, plan_.micro_batches(curves_.step / iterations()));
    if (!batches) return false;
    const PhaseTimes::Span span(run_.times, "compute");
    const double lr = work_.config.trainer.optimizer.lr * factor(curves_.step);
    const StepResult result =
        trainer_.step(batches->items.size(), batches->own, lr, [&] { run_.work.live_together("train", number); });
    ++curves_.step;
    curves_.loss.push_back(static_cast<float>(result.loss));
    curves_.grad_norm.push_back(static_cast<float>(result.grad_norm));
    const std::vector<float> numbers = work_.open.curve(result);
    curves_.rewards.insert(curves_.rewards.end(), numbers.begin(), numbers.end());
    tokens_ += result.tokens;
    all_tokens_ += result.tokens;
    run_.work.steps = {curves_.step, steps_, all_tokens_};
    if (result.skipped) skipped(batches->items, result);
    log_step(result, lr);
    return true;
  }

  void skipped(const std::vector<Samples>& batches, const StepResult& result) {
    std::set<std::uint64_t> samples;
    for (const std::uint64_t batch : result.not_finite) samples.insert(batches[batch].begin(), batches[batch].end());
    std::string records;
    for (const std::uint64_t sample : samples) {
      if (records.size() > 400) {
        records += ", ...";
        break;
      }
      records += (records.empty() ? "" : ", ") + data_.key(sample);
    }
    const std::string what = records.empty()
                                 ? "the sum of all gradients is not finite"
                                 : fmt::format("loss or gradient is not finite among the records {}", records);
    if (is_root()) {
      log_warning("{}: step {} is skipped: {} (loss {})", work_.config.name, curves_.step, what, result.loss);
      work_.context.log.event("skipped_step",
                              {{"task", work_.config.name}, {"step", curves_.step}, {"records", records}});
    }
    MAGISTER_CHECK(
        curves_.skipped_in_a_row() < kMostSkipped, ExitCode::kData,
        "{}: {} steps in a row were skipped, the last is {}: {} (loss {}; the weights no longer learn); lower "
        "train.optimizer.lr, or look at these records",
        work_.config.name, kMostSkipped, curves_.step, what, result.loss);
  }

  void log_step(const StepResult& result, double lr) {
    const double seconds = std::chrono::duration<double>(Clock::now() - last_line_).count();
    const bool is_due = seconds >= kSecondsOfALine || verbosity() == Verbosity::kVerbose;
    if (!is_root()) return;
    const double rate = static_cast<double>(tokens_) / seconds;
    if (Monitor* const monitor = work_.context.monitor; monitor != nullptr) {
      monitor->show_progress({{"task", work_.config.name},
                              {"units", steps_},
                              {"units_done", curves_.step},
                              {"tokens_per_second", rate},
                              {"loss", result.loss}});
    }
    if (!is_due && curves_.step != steps_) return;
    log_info("{}: step {}/{}, loss {:.4f}, norm {:.3g}, lr {:.3g}, {:.0f} tokens/s", work_.config.name, curves_.step,
             steps_, result.loss, result.grad_norm, lr, rate);
    nlohmann::ordered_json event = {
        {"task", work_.config.name}, {"step", curves_.step},          {"steps", steps_},
        {"loss", result.loss},       {"grad_norm", result.grad_norm}, {"lr", lr},
        {"tokens_per_second", rate}, {"skipped", curves_.skipped()},  {"tokens", all_tokens_}};
    for (const std::string& line : work_.open.describe(result, event)) log_info("{}: {}", work_.config.name, line);
    work_.context.log.event("step", event);
    last_line_ = Clock::now();
    tokens_ = 0;
  }

  void save() {
    if (curves_.step == saved_ && (curves_.step == 0 || curves_.evaluations.size() == saved_evaluations_)) return;
    const PhaseTimes::Span span(run_.times, "save");
    run_.work.live_together("save", static_cast<std::int64_t>(curves_.step));
    states_.save(curves_);
    world_.wait_for_all();
    saved_ = curves_.step;
    saved_evaluations_ = curves_.evaluations.size();
    log_states();
  }

  // The results are complete, or the job stops, only when the last state is on disk.
  void wait_for_state() {
    const PhaseTimes::Span span(run_.times, "save");
    run_.work.live_together("save", static_cast<std::int64_t>(curves_.step));
    states_.wait();
    world_.wait_for_all();
    log_states();
  }

  void log_states() {
    for (const std::uint64_t step : states_.take_written()) log_steps("state", step);
  }

  // Writes an event with the last step that a restart could resume from.
  void log_steps(const char* event, std::uint64_t step) {
    if (!is_root()) return;
    nlohmann::ordered_json fields = {{"task", work_.config.name}, {"step", step}, {"steps", steps_}};
    if (step > 0) fields["loss"] = curves_.loss[step - 1];
    const double seconds = std::chrono::duration<double>(Clock::now() - first_line_).count();
    if (all_tokens_ > 0) {
      fields["tokens_per_second"] = static_cast<double>(all_tokens_) / seconds;
      fields["tokens"] = all_tokens_;
    }
    work_.context.log.event(event, fields);
  }

  const ModelRun& run_;
  const TrainingWork& work_;
  const Communicator& world_;
  const Communicator failed_;  // for keep_state() alone
  TrainingSamples data_;
  BatchPlan plan_;
  std::uint64_t steps_;  // updates
  Trainer trainer_;
  StateWriter states_;
  TrainingCurves curves_;
  const StepInputs inputs_;
  const CurveSet &curves_of_steps_, &curves_of_held_out_;
  std::uint64_t saved_ = 0, saved_evaluations_ = 0;  // the last state that was begun
  std::uint64_t tokens_ = 0;                         // since last_line_
  std::uint64_t all_tokens_ = 0;                     // since first_line_
  Clock::time_point last_line_ = Clock::now(), first_line_ = last_line_;
};

}  // namespace

void run_training(const ModelRun& run, const TrainingWork& work, const PlanNumbers& plan) {
  Training training(run, work, plan);
  training.run();
  training.close();
}

}  // namespace magister
