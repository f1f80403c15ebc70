// `grpo`: records are prompts, texts or chats that an answer follows. The model generates several texts for each prompt
// during the training and learns from their rewards, relative to those of the same prompt. global_batch and steps count
// texts and updates, as in TRL; a step of the plan takes prompts.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "magister/core/error.h"
#include "magister/parallel/gathered.h"
#include "magister/run/generator_shard.h"
#include "magister/runtime/chat_prompts.h"
#include "magister/runtime/end_tokens.h"
#include "magister/runtime/sampling_config.h"
#include "magister/tasks/rollout/text_reward.h"
#include "magister/train/gradient_tree.h"
#include "tasks/train/grpo_steps.h"
#include "tasks/train/objective.h"
#include "tasks/train/open_objective.h"

namespace magister {
namespace {

class OpenGrpo final : public OpenObjective {
 public:
  OpenGrpo(const TrainConfig& config, const TaskInputs& inputs);

  bool awaits_earlier() const override { return reward_.is_placeholder(); }
  std::vector<std::string> keep_weights(WeightStore& store, const Attributes& identity) override {
    std::vector<std::string> names;
    reward_.keep_weights(store, identity, names);
    return names;
  }
  Attributes identity() override;
  LearntEnds ends() const override { return {.chats = chat_.has_value(), .written = ends_}; }
  void add_rules(SampleRules& rules) override;
  void add_host_memory(const TrainingShape&, std::uint64_t weights, MemoryParts& parts) const override {
    for (auto& part : reward_.memory(1)) parts.push_back(std::move(part));
    if (config_.has_reference_weights()) parts.emplace_back("reference", weights);
  }
  bool begin_steps(const StepInputs& inputs) override;
  std::optional<StepBatches> batches(const StepInputs& inputs, std::uint64_t update,
                                     std::vector<Samples> planned) override {
    const PhaseTimes::Span span(inputs.run.times, "rollouts");
    return steps_->batches(update, planned);
  }
  std::vector<float> curve(const StepResult& result) const override { return steps_->curve(result).numbers(); }
  std::vector<std::string> describe(const StepResult& result, nlohmann::ordered_json& event) const override;
  void end_steps() override { steps_.reset(); }

 private:
  std::vector<TokenId> encode(const Record& record) const;
  void read_needed(const Communicator& world);

  TextReward reward_;
  std::vector<TokenId> ends_;  // end tokens of the generated texts
  std::optional<ChatPrompts> chat_;
  std::vector<std::vector<std::string>> needed_;  // by prompt: the fields of the record that the reward reads
  std::optional<GrpoSteps> steps_;
};

// Checks the lengths before the reward model is opened.
const RewardConfig& checked_reward(const TrainConfig& config) {
  MAGISTER_CHECK(config.grpo.max_new_tokens < config.batches.max_length, ExitCode::kConfig,
                 "{}: grpo.max_new_tokens is {}, and max_length {}, as the models have positions (no token is left for "
                 "a prompt); lower grpo.max_new_tokens, or leave it to the models with auto",
                 config.name, config.grpo.max_new_tokens, config.batches.max_length);
  return config.grpo.reward;
}

OpenGrpo::OpenGrpo(const TrainConfig& config, const TaskInputs& inputs)
    : OpenObjective(config, inputs),
      reward_(checked_reward(config),
              {config.name, "grpo.reward", config.dataset, config.batches.max_length, config.length_place,
               checkpoint_.tokenizer_identity()},
              context_),
      ends_(policy_end_tokens(checkpoint_)) {
  checkpoint_.rules();
  const ModelConfig& model = checkpoint_.config();
  check_positions(model, config_.length_place, config_.batches.max_length, 0);
  MAGISTER_CHECK(model.final_logit_softcapping == 0 || config_.grpo.sampling.temperature == 1, ExitCode::kConfig,
                 "{}: grpo.temperature is {}, and the model caps its logits (the gradient of a temperature after "
                 "the cap is not computed yet); choose 1",
                 config_.name, config_.grpo.sampling.temperature);
  reward_.check_fields(dataset_);
  if (config_.dataset.messages_field.empty()) return;
  chat_.emplace(checkpoint_, config_.dataset);
  warn_of_unended_turn(checkpoint_, config_.name, ends_);
}

Attributes OpenGrpo::identity() {
  Attributes attributes = OpenObjective::identity();
  for (auto& attribute : reward_.identity(context_.world, context_.stop_poll()))
    attributes.push_back(std::move(attribute));
  leave_if_stopped(context_.world, context_.stop);
  return attributes;
}

// A missing answer is found here.
std::vector<TokenId> OpenGrpo::encode(const Record& record) const {
  reward_.needed(record);
  if (chat_) return chat_->encode(ChatPrompts::chat_of(record, config_.dataset), true, record.where);
  std::vector<TokenId> ids;
  checkpoint_.tokenizer().encode(prompt_text(record, config_.dataset), EncodeOptions{}, ids);
  return ids;
}

void OpenGrpo::add_rules(SampleRules& rules) {
  rules.tokenizer = &checkpoint_.tokenizer();
  rules.shown_as = "prompt";
  rules.max_length = config_.longest_prompt();
  rules.overflow = Overflow::kError;
  rules.may_cut = false;
  rules.min_length = 1;
  rules.length_key = "train.max_length less grpo.max_new_tokens";
  rules.encode = [this](const Record& record) { return std::vector{SampleTokens(encode(record))}; };
}

// Every rank reads its share of the records and gets those of all ranks, since each step decides anew which rank
// generates a text. Collective over world.
void OpenGrpo::read_needed(const Communicator& world) {
  if (!config_.grpo.reward.reads_fields() && reward_.model() == nullptr) return;
  const IndexRange all = dataset_.records(), own = micro_batches_of(all.size(), world.rank(), world.size());
  std::vector<std::uint64_t> counts, lengths;
  std::vector<char> bytes;
  dataset_.for_each({all.begin + own.begin, all.begin + own.end}, [&](Record&& record) {
    const std::vector<std::string> texts = reward_.needed(record);
    counts.push_back(texts.size());
    for (const std::string& text : texts) {
      lengths.push_back(text.size());
      bytes.insert(bytes.end(), text.begin(), text.end());
    }
  });
  const std::vector<char> all_bytes = gathered(world, bytes);
  const std::vector<std::uint64_t> all_lengths = gathered(world, lengths);
  needed_.clear();
  auto at = all_bytes.begin();
  auto length = all_lengths.begin();
  for (const std::uint64_t count : gathered(world, counts)) {
    std::vector<std::string>& texts = needed_.emplace_back();
    for (std::uint64_t i = 0; i < count; ++i, ++length) {
      const auto end = at + static_cast<std::ptrdiff_t>(*length);
      texts.emplace_back(at, end);
      at = end;
    }
  }
}

bool OpenGrpo::begin_steps(const StepInputs& inputs) {
  read_needed(inputs.world);
  TextRules rules;
  rules.tokenizer = &checkpoint_.tokenizer();
  rules.end_tokens = ends_;
  rules.rules = checkpoint_.rules();
  rules.rewards = [this](std::span<const GrpoText> texts, int num_threads, const std::function<void()>& heartbeat) {
    std::vector<WrittenText> written;
    for (const GrpoText& text : texts) written.push_back({text.text, text.tokens});
    const GrpoText& first = texts.front();
    return reward_.rewards(needed_.empty() ? std::vector<std::string>() : needed_.at(first.prompt), written,
                           first.where, num_threads, heartbeat);
  };
  if (config_.grpo.log_completions) rules.log_folder = rollout_folder(context_);
  steps_.emplace(inputs, config_, std::move(rules));
  return true;
}

std::vector<std::string> OpenGrpo::describe(const StepResult& result, nlohmann::ordered_json& event) const {
  const PolicyCurve curve = steps_->curve(result);
  std::vector lines = {
      fmt::format("reward {:.4f}, deviation {:.4f}, kl {:.3g}, {:.1f} tokens a text, {:.0f}% truncated", curve.reward,
                  curve.reward_std, curve.kl, static_cast<double>(curve.tokens) / static_cast<double>(curve.texts),
                  100 * curve.truncated)};
  if (const auto unread = steps_->unread()) {
    lines.push_back(describe_unread(*unread));
    event["unread"] = unread_json(*unread);
  }
  return lines;
}

// Reads how texts are generated.
void read_grpo_texts(ConfigNode& node, GrpoConfig& config, PolicyOptions& policy) {
  config.num_generations = node.count("num_generations", 8, 2, 4096);
  config.text_length = LengthKey(node, "max_new_tokens", 512, 1, 1 << 20);
  config.max_new_tokens = config.text_length.tokens();
  const SamplingParams& sampling = config.sampling = read_sampling(node);
  if (sampling.temperature < 0.01) {
    node.reject("temperature",
                "{} (all texts of a prompt would be the same, and none better than the others); choose 0.01 or more",
                sampling.temperature);
  }
  node.range_end("temperature", ConfigNode::RangeEnd::kLeast, 0.01);
  policy.temperature = sampling.temperature;
  if (sampling.top_k == 1)
    node.reject("top_k", "1 (all texts of a prompt would be the same); choose 0 for all tokens, or more");
}

void read_grpo_loss(ConfigNode& node, GrpoConfig& config, PolicyOptions& policy) {
  const std::string loss = node.choice("loss_type", {"dapo", "grpo", "bnpo", "dr_grpo"}, "dapo");
  config.reduction = loss == "grpo"      ? PolicyReduction::kGrpo
                     : loss == "bnpo"    ? PolicyReduction::kBnpo
                     : loss == "dr_grpo" ? PolicyReduction::kDrGrpo
                                         : PolicyReduction::kDapo;
  policy.beta = node.number("beta", 0.0, 0, 1e6);
  policy.use_bias_correction_kl = node.boolean("use_bias_correction_kl", true);
  policy.epsilon = node.number("epsilon", 0.2, 0, 1);
  policy.epsilon_high = node.number("epsilon_high", policy.epsilon, 0, 1e6);
  const std::string scale = node.choice("scale_rewards", {"group", "batch", "none"}, "group");
  config.scale = scale == "batch" ? RewardScale::kBatch : scale == "none" ? RewardScale::kNone : RewardScale::kGroup;
  config.num_iterations = node.count("num_iterations", 1, 1, 1024);
}

// Names and defaults are those of TRL's GRPOConfig, and for generation those of this program's `generate`.
void read_grpo_keys(ConfigNode& task, const ExperimentConfig& experiment, TrainConfig& config) {
  GrpoConfig& grpo = config.grpo;
  PolicyOptions& policy = config.trainer.policy;
  ConfigNode of_grpo =
      task.only_if(config.of_prompts(), "is given with another objective; set objective: grpo, or remove it");
  ConfigNode node = of_grpo.section("grpo");
  read_grpo_texts(node, grpo, policy);
  read_grpo_loss(node, grpo, policy);
  grpo.log_completions = node.boolean("log_completions", false);
  grpo.reward = read_reward(node.section("reward"), config.of_prompts(), experiment);
  node.also_called("num_generations", {"n", "group_size", "num_return_sequences"});
  node.also_called("max_new_tokens", {"max_completion_length", "max_tokens", "max_completion_tokens"});
  node.also_called("epsilon", {"epsilon_low", "clip_range", "cliprange"});
  node.also_called("beta", {"kl_coef", "kl_coefficient"});
  node.also_called("num_iterations", {"ppo_epochs", "mu"});
}

void read_grpo_batches(ConfigNode& task, ConfigNode& section, TrainConfig& config) {
  const GrpoConfig& grpo = config.grpo;
  BatchOptions& batches = config.batches;
  if (batches.global_batch % grpo.num_generations != 0) {
    section.reject(
        "global_batch",
        "{} texts are not whole groups of {} (a text is compared with the others of its prompt); choose a multiple of "
        "grpo.num_generations",
        batches.global_batch, grpo.num_generations);
  }
  if (grpo.text_length.is_written() && grpo.max_new_tokens >= batches.max_length) {
    section.reject(
        "max_length",
        "{} tokens of prompt and text, of which grpo.max_new_tokens takes {} (no token is left for a prompt); raise "
        "max_length, or lower grpo.max_new_tokens",
        batches.max_length, grpo.max_new_tokens);
  }
  if (grpo.reduction == PolicyReduction::kBnpo && batches.micro_batch == 0) {
    section.reject(
        "micro_batch",
        "auto with loss_type: bnpo (its loss is the mean over micro-batches of each one's mean, so their size decides "
        "it); set micro_batch");
  }
  if (!config.dataset.tokens_field.empty())
    task.reject("dataset",
                "tokens with objective: grpo (rewards are read from texts); name a field with text or messages");
  config.steps = batches.steps;
  batches.steps = (batches.steps + grpo.num_iterations - 1) / grpo.num_iterations;
  batches.global_batch = std::max<std::uint64_t>(1, batches.global_batch / grpo.num_generations);
  if (grpo.reward.reads_fields()) config.dataset.whole_record = true;
}

// Sets a max_new_tokens of `auto`: the default if that leaves half of max_length for the prompt, or if a written
// max_length is longer than the default; else half of max_length.
void fit_text(TrainConfig& config, Notes& notes) {
  LengthKey& text = config.grpo.text_length;
  if (text.is_written()) return;
  const LengthKey& length = config.length;
  const std::uint64_t half = std::max<std::uint64_t>(1, length.tokens() / 2);
  const bool as_usual = text.usual() <= half || (length.is_written() && text.usual() < length.tokens());
  text.become(as_usual ? text.usual() : half);
  config.grpo.max_new_tokens = text.tokens();
  if (as_usual) return;
  notes.emplace_back("grpo.max_new_tokens",
                     fmt::format("{}, half of max_length (auto; {} where that is longer)", half, text.usual()));
}

void fit_prompts(TrainConfig& config, const Positions& own, const PositionsOf& of, Notes& notes) {
  RewardConfig& reward = config.grpo.reward;
  const std::uint64_t rewarded = config.length.is_written() ? 0 : positions_of_reward(reward, of);
  fit_length(config.length, fewer(own.cached, rewarded), notes);
  config.batches.max_length = config.length.tokens();
  fit_text(config, notes);
  fit_judge(reward, of, notes);
}

// An estimate: each prompt has num_generations texts of full length.
ModelWork work_of_prompts(const TrainConfig& config, double samples, double tokens) {
  const BatchOptions& batches = config.batches;
  const double length = samples > 0 ? tokens / samples : 0;
  const double prompts = config.steps > 0 ? static_cast<double>(config.steps * batches.global_batch)
                                          : batches.epochs * samples,
               texts = prompts * static_cast<double>(config.grpo.num_generations),
               written = texts * static_cast<double>(config.grpo.max_new_tokens);
  return {0, written, texts * length + written, static_cast<double>(batches.global_batch)};
}

}  // namespace

constinit const Objective kGrpoObjective = {
    .kind = ObjectiveKind::kGrpo,
    .name = "grpo",
    .default_lr = 1e-6,
    .items = "prompts",
    .first_token_counts = true,
    .refused = {.append_eos = "is given with objective: grpo (the model writes on after a prompt); remove it",
                .assistant_only = "is given with objective: grpo (all that the model writes is learnt, and no more); "
                                  "remove it",
                .batch_tokens = "is given with objective: grpo (a step takes whole groups of texts whose lengths are "
                                "not known in advance); name global_batch",
                .packing = "is given with objective: grpo (every text follows its own prompt); remove it",
                .evaluate = kNothingHeldOut},
    .read = read_grpo_keys,
    .read_batches = read_grpo_batches,
    .fit_lengths = fit_prompts,
    .model_work = work_of_prompts,
    .curves = [](const TrainConfig&) -> const CurveSet& { return kPolicyCurves; },
    .open = open_as<OpenGrpo>};

}  // namespace magister
