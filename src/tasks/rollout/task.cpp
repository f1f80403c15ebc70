// Task rollout: prompts -> one text each, cut at random places -> continuations -> their rewards, and preferences
// between pairs of them: training data of value models. Sources: PITA (arXiv 2507.20067), Q# (arXiv 2502.20548).
#include "magister/run/task.h"

#include <algorithm>

#include "magister/core/error.h"
#include "magister/runtime/chat_prompts.h"
#include "magister/runtime/end_tokens.h"
#include "magister/tasks/score/unread_counts.h"
#include "tasks/rollout/columns.h"
#include "tasks/rollout/config.h"
#include "tasks/rollout/worker.h"

namespace magister {
namespace {

class RolloutJob final : public TaskJob {
 public:
  RolloutJob(const RolloutConfig& config, const TaskInputs& inputs);

  Attributes identity() override;
  std::vector<std::string> keep_weights(WeightStore& store, const Attributes& identity) override;
  Awaited awaited() const override {
    return {.placeholder = (value_ && value_->is_placeholder()) || setup_.reward->is_placeholder()};
  }
  SampleRules rules() override;
  TaskResults results(const PlanNumbers& plan) const override {
    TaskResults results;
    results.columns = rollout_columns(shape(plan));
    results.default_plot_column = rollout_column::kMeanReward.path;
    results.made_smaller_by = "max_new_tokens, cuts or n";
    results.notes = {{"continuations", std::to_string(plan.num_samples * config_.texts())}};
    if (value_) results.notes.emplace_back("guide", value_->describe());
    return results;
  }
  MemoryDemand demand(const PlanNumbers& plan) const override;
  bool report(const ResultsFile& file, const PlanNumbers& plan) override {
    return !setup_.reward->reports_unread() ||
           report_unread(inputs_.context, config_.name, file, rollout_column::kUnread.path, plan.num_samples,
                         config_.cuts * config_.n);
  }
  void work(const ModelRun& run) override;
  std::unique_ptr<ShardWorker> worker(ShardContext shard) override {
    const RolloutShape size = shape(shard.run.plan);
    return make_rollout_worker(std::move(shard), setup_, size);
  }

 private:
  bool rewards_on_gpus() const { return setup_.reward->model() != nullptr && setup_.reward->model()->is_on_gpus(); }
  std::vector<TokenId> encode(const Record& record) const;
  RolloutShape shape(const PlanNumbers& plan) const {
    return {.num_records = plan.num_samples,
            .num_tokens = plan.num_tokens,
            .key_bytes = plan.key_bytes,
            .cuts = config_.cuts,
            .n = config_.n,
            .slots = config_.max_new_tokens.tokens(),
            .unread = setup_.reward->reports_unread()};
  }

  RolloutSetup setup_;
  const RolloutConfig& config_;  // the one of setup_
  const PassShape pass_;
  const TaskInputs inputs_;
  OpenModel reference_;  // its cache leaves room for the other models
  const Tokenizer& tokenizer_;
  std::unique_ptr<ValueModel> value_;  // null: no guide
  std::optional<ChatPrompts> chat_;
};

RolloutJob::RolloutJob(const RolloutConfig& config, const TaskInputs& inputs)
    : setup_{without_auto(config, inputs.model.pass_limits()), inputs.checkpoint.tokenizer(), inputs.dataset},
      config_(setup_.config),
      pass_(text_pass(config_, config_.limits({}))),
      inputs_(inputs),
      reference_(inputs.model),
      tokenizer_(setup_.tokenizer) {
  setup_.config.sampling.rules = inputs.checkpoint.rules(!config_.ignore_eos);
  check_positions(inputs.checkpoint.config(), config_.length_place, config_.max_prompt_length.tokens(),
                  config_.max_new_tokens.tokens());
  setup_.stops.texts = config_.stop;
  if (!config_.ignore_eos) setup_.stops.tokens = inputs.checkpoint.end_tokens();
  const std::uint64_t longest = config_.longest_text();
  setup_.reward = std::make_unique<TextReward>(config_.reward,
                                               RewardedTexts{config_.name,
                                                             "reward",
                                                             config_.dataset,
                                                             longest,
                                                             config_.length_place,
                                                             {tokenizer_.sha256(), tokenizer_.rules_sha256()}},
                                               inputs.context, inputs.model.gpu);
  if (!inputs.data_is_placeholder) setup_.reward->check_fields(inputs.dataset);
  if (rewards_on_gpus()) reference_.reserved_bytes = sum_of(setup_.reward->model()->memory(inputs.tp_size));
  if (config_.guide) {
    value_ = std::make_unique<ValueModel>(
        *config_.guide, inputs,
        GuidedTexts{longest, config_.max_sequences, config_.token_budget, pass_, reference_.reserved_bytes});
    reference_.reserved_bytes += value_->gpu_bytes();
  }
  if (config_.dataset.messages_field.empty()) return;
  chat_.emplace(inputs.checkpoint, config_.dataset);
  if (!config_.ignore_eos)
    warn_of_unended_turn(inputs.checkpoint, config_.name, setup_.stops.tokens, setup_.stops.texts);
}

Attributes RolloutJob::identity() {
  Attributes all;
  const Communicator& world = inputs_.context.world;
  const auto add = [&](Attributes&& some) {
    for (auto& attribute : some) all.push_back(std::move(attribute));
  };
  if (value_) add(value_->identity(world, inputs_.context.stop_poll()));
  add(setup_.reward->identity(world, inputs_.context.stop_poll()));
  if (!all.empty()) leave_if_stopped(world, inputs_.context.stop);
  return all;
}

std::vector<std::string> RolloutJob::keep_weights(WeightStore& store, const Attributes& identity) {
  std::vector<std::string> names;
  if (value_) value_->keep_weights(store, identity, names);
  setup_.reward->keep_weights(store, identity, names);
  return names;
}

// The memory of all models on one device. On GPUs a judge is not included: it runs on the CPU.
MemoryDemand RolloutJob::demand(const PlanNumbers& plan) const {
  const std::uint64_t longest = plan.longest_sample + config_.max_new_tokens.tokens();
  MemoryDemand demand;
  demand.cache_pages =
      static_cast<std::uint64_t>(pages_of_texts(reference_, inputs_.tp_size, pass_, longest, config_.max_sequences));
  const bool guided = value_ && value_->params().multiplier > 0;
  if (!guided && config_.reward.is_verified()) return demand;
  demand.device = inputs_.model.device_memory(inputs_.tp_size, pass_, demand.cache_pages);
  if (guided) {
    for (auto& part : value_->memory(longest)) demand.device.push_back(std::move(part));
  }
  if (rewards_on_gpus() || !inputs_.model.gpu) {
    for (auto& part : setup_.reward->memory(inputs_.tp_size)) demand.device.push_back(std::move(part));
  }
  return demand;
}

std::vector<TokenId> RolloutJob::encode(const Record& record) const {
  setup_.reward->needed(record);
  if (chat_) return chat_->encode(ChatPrompts::chat_of(record, config_.dataset), true, record.where);
  std::vector<TokenId> ids;
  tokenizer_.encode(prompt_text(record, config_.dataset), EncodeOptions{}, ids);
  return ids;
}

SampleRules RolloutJob::rules() {
  const std::int64_t own = inputs_.checkpoint.config().vocab_size;
  SampleRules rules = prompt_rules(config_, value_ ? std::min(own, value_->vocab_size()) : own, &tokenizer_);
  rules.encode = [this](const Record& record) -> std::vector<SampleTokens> { return {encode(record)}; };
  return rules;
}

void RolloutJob::work(const ModelRun& run) {
  if (value_) setup_.guide = value_->shard_guide(run.plan.longest_sample + config_.max_new_tokens.tokens());
  TaskJob::work(run);
}

class Rollout final : public Task {
 public:
  explicit Rollout(RolloutConfig config)
      : Task("rollout", config.name, config.model, config.dataset,
             {.keeps_widths = true,
              .needs = {config.guide ? config.guide->model.task : std::string(),
                        config.reward.model ? config.reward.model->task : std::string()}}),
        config_(std::move(config)) {}

  std::vector<SecondModel> second_models(const PassLimits& device) const override {
    const PassLimits chosen = config_.limits(device);
    const PassShape pass = pass_shape(device);
    auto models = value_models(config_.guide, {.longest = pass.sequence_tokens,
                                               .max_sequences = chosen.sequences,
                                               .token_budget = chosen.tokens,
                                               .pass = pass});
    if (config_.reward.model) models.push_back(reward_model_of(*config_.reward.model, pass.sequence_tokens));
    return models;
  }
  std::uint64_t cached_tokens() const override { return config_.longest_text(); }
  Notes fit_lengths(const Positions& own, const PositionsOf& of) override {
    Notes notes;
    fit_judge(config_.reward, of, notes);
    if (both_written(config_.max_prompt_length, config_.max_new_tokens)) return notes;
    const std::uint64_t guide = config_.guide ? of(config_.guide->model).cached : 0;
    magister::fit_lengths(config_.max_prompt_length, config_.max_new_tokens,
                          fewer(fewer(own.cached, guide), positions_of_reward(config_.reward, of)), notes);
    return notes;
  }
  PassShape pass_shape(const PassLimits& device) const override { return text_pass(config_, config_.limits(device)); }
  RecordTexts record_texts(const RunContext&) const override {
    RecordTexts own{config_.texts()};
    own.per_cut = config_.n;
    if (config_.reward.is_verified()) own.rewards = {std::min(0.0, config_.scale), std::max(0.0, config_.scale)};
    return own;
  }
  // On average a cut is in the middle of the text.
  ModelWork model_work(double samples, double tokens) const override {
    const double after_cuts = static_cast<double>(config_.texts()) / 2;
    return {tokens, samples * (1 + after_cuts) * static_cast<double>(config_.max_new_tokens.tokens()), 0,
            static_cast<double>(config_.limits({}).sequences)};
  }
  std::unique_ptr<TaskJob> open(const TaskInputs& inputs) const override {
    return std::make_unique<RolloutJob>(config_, inputs);
  }

 private:
  RolloutConfig config_;
};

}  // namespace

TaskKind rollout_task() {
  return {.name = "rollout", .read = read_as<Rollout, read_rollout_config>, .schema = &kRolloutSchema, .draws = true};
}

}  // namespace magister
