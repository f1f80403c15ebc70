// What a training takes, what it is made of and what becomes of it; see job.h.
#include "tasks/train/job.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "magister/core/error.h"
#include "magister/core/log.h"
#include "magister/device/gpu.h"
#include "magister/parallel/thread_pool.h"
#include "magister/run/device_group.h"
#include "magister/run/open_model.h"
#include "magister/run/results_on_disk.h"
#include "magister/run/unit_samples.h"
#include "magister/train/checkpoint.h"
#include "magister/train/gradient_tree.h"
#include "tasks/train/columns.h"
#include "tasks/train/data.h"
#include "tasks/train/evaluation.h"
#include "tasks/train/reference.h"
#include "tasks/train/rollouts.h"
#include "tasks/train/run.h"

namespace magister {
namespace fs = std::filesystem;

void TrainJob::work(const ModelRun& run, const PlanNumbers& plan) {
  check_device_memory(run.group, 0, model_, memory(plan));
  if (model_.gpu && run.group.groups_here() > 1 && context_.world.rank() == 0)
    log_warning("{}: a training computes on one GPU a rank, and a rank has {} here; start a rank a GPU", config_.name,
                run.group.groups_here());
  const bool sums_on_gpu = shape_of(plan).sums_on_gpu;
  TrainingWork work{context_, config_, layout_, checkpoint_.file(), teacher_.get(), states(), state_identity()};
  work.pad_token_id = pad_token();
  work.sums_on_gpu = sums_on_gpu;
  if (config_.of_head()) work.new_head = {config_.batches.seed, checkpoint_.config().initializer_range};
  if (prompts_) work.texts = prompts_->text_rules(context_.world, dataset_, log_folder());
  if (held_out_records_) work.held_out = &*held_out_records_;
  if (!config_.dataset.margin_field.empty()) {
    work.read_margins = [this] {
      return of_records([this](const Record& record) { return std::vector<double>{pairs_->margin(record)}; });
    };
  }
  if (config_.objective() == Objective::kValue) {
    work.read_labels = [this] { return of_records([this](const Record& record) { return values_->labels(record); }); };
  }
  run_training(run, work, plan);
}

// Of packed samples, and of batches by tokens, a lower bound.
std::uint64_t TrainJob::steps(const PlanNumbers& plan) const {
  const BatchOptions& batches = config_.batches;
  if (batches.steps > 0) return config_.updates(batches.steps);
  const std::uint64_t sequences =
      batches.packing ? plan.num_tokens / batches.max_length + 1 : plan.num_samples / (config_.of_pairs() ? 2 : 1);
  const std::uint64_t an_epoch = batches.batch_tokens > 0
                                     ? plan.num_tokens / batches.batch_tokens + 1
                                     : (sequences + batches.global_batch - 1) / batches.global_batch;
  return config_.updates(static_cast<std::uint64_t>(std::ceil(static_cast<double>(an_epoch) * batches.epochs)));
}

TaskResults TrainJob::results(const PlanNumbers& plan) const {
  TaskResults results;
  results.columns =
      sample_columns(plan.num_samples, plan.num_tokens, plan.key_bytes,
                     "tokens of sample i are offset[i] .. offset[i+1] of /tokens", "the tokens that are learnt from");
  if (config_.marks()) {
    results.columns.push_back({"/tokens/assistant", ColumnType::kU8, plan.num_tokens, 0,
                               config_.distills ? "1: the teacher has scored the row before it, which is learnt"
                               : config_.values ? "1: the value of the text up to it is learnt"
                               : pairs_         ? "1: of the answer, and learnt"
                                                : "1: written by the assistant of the chat, and learnt",
                               "", ColumnSpec::Extent::kRows});
  }
  if (config_.objective() == Objective::kDpo) {
    for (ColumnSpec& column : reference_columns(plan.num_samples)) results.columns.push_back(std::move(column));
  }
  // Of this the states take most: weights and two moments each.
  const std::uint64_t weights = 4 * static_cast<std::uint64_t>(trained().num_parameters());
  const std::uint64_t evaluations =
      config_.evaluate ? num_evaluations(steps(plan), config_.evaluate->every, steps(plan)) : 0;
  results.packed_bytes = train_results_bytes(steps(plan), evaluations) + weights + 3 * weights * (config_.keep + 1);
  return results;
}

TrainingShape TrainJob::shape_of(const PlanNumbers& plan) const {
  const BatchOptions& batches = config_.batches;
  TrainingShape shape;
  const std::uint64_t longest =
      std::max<std::uint64_t>(plan.longest_sample + (config_.of_prompts() ? config_.grpo.max_new_tokens : 0), 2);
  const std::uint64_t sequence = batches.packing ? batches.max_length : longest * (config_.of_pairs() ? 2 : 1);
  shape.longest = static_cast<std::int64_t>(longest);
  shape.tokens = static_cast<std::int64_t>(batches.micro_batch > 0 ? batches.micro_batch * sequence
                                                                   : std::max<std::uint64_t>(sequence, 1024));
  const auto ranks = static_cast<std::uint64_t>(context_.world.size());
  shape.own_micro_batches = (micro_batches_at_most() + ranks - 1) / ranks;
  shape.adapter = lora_ ? lora_->num_parameters() : 0;
  shape.recompute = config_.trainer.recompute;
  shape.num_threads = model_.gpu ? 1 : std::max(1, usable_cores() / std::max(1, model_.shards_on_host));
  shape.sharing = config_.trainer.divides_optimizer ? context_.world.size() : 1;
  shape.with_weights = lora_ || config_.trainer.divides_optimizer ? ranks_on_host() : 1;
  shape.bf16 = config_.trainer.bf16;
  shape.sums_on_gpu = model_.gpu && sums_fit_on_gpu(shape);
  return shape;
}

// Ranks need not agree: the sums have the same bits on both devices.
bool TrainJob::sums_fit_on_gpu(TrainingShape shape) const {
  if (model_.gpu->on_host()) return true;
  shape.sums_on_gpu = true;
  return static_cast<double>(sum_of(gpu_training_bytes(checkpoint_.config(), shape))) <=
         kUsableGpuShare * static_cast<double>(gpu_memory(model_.gpu->device).free_bytes);
}

int TrainJob::ranks_on_host() const { return std::clamp(model_.shards_on_host, 1, context_.world.size()); }

std::uint64_t TrainJob::micro_batches_at_most() const {
  const BatchOptions& batches = config_.batches;
  return batches.batch_tokens > 0 ? batches.batch_tokens
                                  : batches.global_batch * (config_.of_prompts() ? config_.grpo.num_generations : 1);
}

std::vector<std::pair<std::string, std::uint64_t>> TrainJob::memory(const PlanNumbers& plan) const {
  const TrainingShape shape = shape_of(plan);
  if (model_.gpu) return gpu_training_bytes(checkpoint_.config(), shape);
  auto parts = training_bytes(checkpoint_.config(), shape);
  add_host_parts(shape, parts);
  if (config_.of_prompts()) {
    const std::uint64_t weights = 4 * checkpoint_.config().num_parameters();
    const auto pages = static_cast<std::uint64_t>(num_rollout_pages(model_, config_, plan.longest_sample));
    parts.emplace_back("generator, freed before the gradients", weights + pages * model_.page_bytes(1));
    if (prompts_->reward_model() != nullptr) {
      for (const auto& part : prompts_->reward_model()->memory(1)) parts.push_back(part);
    }
    if (config_.trainer.policy.beta > 0 && !lora_)
      parts.emplace_back("reference", weights / static_cast<std::uint64_t>(ranks_on_host()));
  }
  return parts;
}

std::vector<std::pair<std::string, std::uint64_t>> TrainJob::host_memory(const PlanNumbers& plan) const {
  if (!model_.gpu) return {};
  const TrainingShape shape = shape_of(plan);
  auto parts = host_training_bytes(checkpoint_.config(), shape);
  add_host_parts(shape, parts);
  return parts;
}

void TrainJob::add_host_parts(const TrainingShape& shape,
                              std::vector<std::pair<std::string, std::uint64_t>>& parts) const {
  if (context_.world.size() > 1) {
    const std::int64_t learnt = lora_ ? lora_->num_parameters() : layout_.num_parameters();
    parts.emplace_back("gradients of other ranks", GradientTree::arriving_bytes(learnt));
  }
  if (held_out_records_) parts.emplace_back("held-out records", held_out_records_->num_bytes());
  if (teacher_ == nullptr) return;
  // An id and a number an entry, in the batch and in the sample that is being read.
  const std::uint64_t at_once =
      std::min<std::uint64_t>(micro_batches_at_most(), static_cast<std::uint64_t>(shape.num_threads));
  parts.emplace_back("teacher's rows", at_once * static_cast<std::uint64_t>(shape.tokens + shape.longest) *
                                           static_cast<std::uint64_t>(teacher_->width()) * 8);
}

std::vector<std::pair<std::string, std::string>> TrainJob::notes(const PlanNumbers& plan) const {
  const BatchOptions& batches = config_.batches;
  const bool is_bound = batches.packing || batches.batch_tokens > 0;
  return {{"steps", fmt::format("{}{} of {}", is_bound && batches.steps == 0 ? "at least " : "", steps(plan),
                                batches.batch_tokens > 0 ? fmt::format("at most {} tokens", batches.batch_tokens)
                                                         : fmt::format("{} {}", batches.global_batch,
                                                                       config_.of_pairs()     ? "pairs"
                                                                       : config_.values       ? "texts"
                                                                       : config_.of_prompts() ? "prompts"
                                                                                              : "sequences"))},
          {"parameters",
           lora_ ? fmt::format("{} of an adapter, beside {}", lora_->num_parameters(), layout_.num_parameters())
                 : std::to_string(layout_.num_parameters())}};
}

void TrainJob::check_complete() const {
  MAGISTER_CHECK(
      fs::is_directory(folder()), ExitCode::kInputOutput,
      "{}: is not there, though {} is complete (the trained model was moved or removed); put it back, or start "
      "over with --fresh",
      printable(folder(), 4096), printable(context_.results_path, 4096));
}

// Who uses the student must write its chats as they were learnt.
ModelOrigin TrainJob::origin() const {
  ModelOrigin origin{checkpoint_.path(), checkpoint_.tokenizer_path(), "", "{}\n"};
  const bool has_chats =
      (texts_ && texts_->has_chats()) || (pairs_ && pairs_->has_chats()) || (prompts_ && prompts_->has_chats());
  const bool own_template = has_chats && !checkpoint_.section().chat_template.empty();
  const bool from_gguf = !fs::is_directory(origin.tokenizer);
  const ChatSource* const source = own_template || from_gguf ? checkpoint_.chat_source() : nullptr;
  if (source == nullptr) return origin;
  origin.chat_template = source->text;
  origin.tokenizer_config =
      nlohmann::json{{"bos_token", source->bos_token}, {"eos_token", source->eos_token}}.dump(2) + "\n";
  return origin;
}

void TrainJob::put_aside() {
  if (context_.world.rank() == 0) {
    put_path_aside(states());
    put_path_aside(log_folder());
    put_path_aside(folder());
  }
  context_.world.barrier();
}

bool TrainJob::pack(const ResultsFile& running, const PlanNumbers& plan, const std::string& path,
                    const Attributes& root) {
  const TrainingData data(running, plan.num_samples, config_, nullptr, -1);
  BatchPlan batches(data.lengths(), config_.batches);
  const std::optional<std::string> state = newest_training_state(states());
  at::Tensor weights;
  const std::int64_t width = rewards_width(config_.objective());
  const TrainingCurves curves =
      state ? load_trained_weights(*state, trained(), weights, state_identity(), width) : TrainingCurves();
  const std::uint64_t num_steps = config_.updates(batches.num_steps());
  MAGISTER_CHECK(curves.step == num_steps, ExitCode::kData,
                 "{}: the newest state is of step {} of {} (the last was removed); run the same command again",
                 printable(states(), 4096), curves.step, num_steps);
  std::vector<StepRow> rows;
  for (std::uint64_t step = 0; step < curves.step; ++step) {
    StepRow& row = rows.emplace_back();
    row.loss = curves.loss[step];
    row.grad_norm = curves.grad_norm[step];
    if (config_.of_pairs())
      row.rewards = {curves.rewards[3 * step], curves.rewards[3 * step + 1], curves.rewards[3 * step + 2]};
    if (config_.objective() == Objective::kValue) row.value = {curves.rewards[2 * step], curves.rewards[2 * step + 1]};
    row.lr = static_cast<float>(config_.trainer.optimizer.lr *
                                lr_factor(config_.schedule, step, config_.warmup_steps(num_steps), num_steps));
    if (config_.of_prompts()) {
      row.policy = PolicyCurve::of(curves.rewards.data() + step * static_cast<std::uint64_t>(width));
      row.tokens = row.policy.tokens;
      continue;
    }
    for (const Samples& samples : batches.micro_batches(step)) row.tokens += data.num_labels(samples);
  }
  if (curves.skipped() > 0) log_warning("{}: {} steps were skipped", config_.name, curves.skipped());
  if (lora_) {
    write_adapter_folder(folder(), origin(), *lora_, weights);
  } else {
    write_model_folder(folder(), origin(), layout_, weights, pad_token());
  }
  std::vector<EvaluationRow> evaluations;
  const auto numbers = static_cast<std::uint64_t>(evaluation_width(config_.objective()));
  for (std::uint64_t i = 0; i < curves.evaluations.size() / numbers; ++i)
    evaluations.push_back(EvaluationRow::of(step_of_evaluation(i, config_.evaluate->every, curves.step),
                                            curves.evaluations.data() + i * numbers, config_.objective()));
  write_train_results(path, root, rows, config_.objective(), config_.distills, evaluations);
  return true;
}

}  // namespace magister
