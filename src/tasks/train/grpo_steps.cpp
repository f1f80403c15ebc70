// See grpo_steps.h. Micro-batches depend on the lengths of the texts alone.
#include "tasks/train/grpo_steps.h"

#include <ATen/ATen.h>

#include "magister/core/error.h"
#include "magister/train/gradient_tree.h"
#include "tasks/train/columns.h"
#include "tasks/train/curves.h"

namespace magister {

// f32 holds integers exactly up to 2^24. So the number of tokens is split into two parts; the number of texts is always
// below that.
std::vector<float> PolicyCurve::numbers() const {
  constexpr std::uint64_t kPart = std::uint64_t{1} << 20;
  return {reward,
          reward_std,
          kl,
          clip_ratio,
          truncated,
          static_cast<float>(tokens >> 20),
          static_cast<float>(tokens % kPart),
          static_cast<float>(texts)};
}

PolicyCurve PolicyCurve::of(const float* numbers) {
  PolicyCurve curve{numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]};
  curve.tokens = (static_cast<std::uint64_t>(numbers[5]) << 20) + static_cast<std::uint64_t>(numbers[6]);
  curve.texts = static_cast<std::uint64_t>(numbers[7]);
  return curve;
}

GrpoSteps::GrpoSteps(const StepInputs& inputs, const TrainConfig& config, TextRules rules)
    : inputs_(inputs),
      config_(config),
      rules_(std::move(rules)),
      writer_(inputs.run, inputs.world, config, inputs.samples, inputs.trainer, rules_) {}

std::optional<StepBatches> GrpoSteps::batches(std::uint64_t update, const std::vector<Samples>& planned) {
  if (update % config_.grpo.num_iterations != 0) return batches_;
  std::vector<MicroBatch>& own = batches_.own;
  own.clear();  // frees memory that the generator needs
  Samples prompts;
  for (const Samples& batch : planned) prompts.insert(prompts.end(), batch.begin(), batch.end());
  auto texts = writer_.write(update, prompts);
  if (!texts) return std::nullopt;
  texts_ = std::move(*texts);
  make_micro_batches();
  const auto heartbeat = [this] { inputs_.run.work.live_together("compute log-probabilities"); };
  Trainer& trainer = inputs_.trainer;
  const bool is_compared = config_.trainer.policy.beta > 0, is_repeated = config_.grpo.num_iterations > 1;
  const auto references = is_compared ? trainer.label_logprobs(own, true, heartbeat) : std::vector<at::Tensor>();
  const auto old = is_repeated ? trainer.label_logprobs(own, false, heartbeat) : std::vector<at::Tensor>();
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (is_compared) own[i].reference_logprob_T = references[i];
    if (is_repeated) own[i].old_logprob_T = old[i];
  }
  return batches_;
}

void GrpoSteps::make_micro_batches() {
  ReductionSizes sizes{texts_.size(), 0, 0, config_.grpo.max_new_tokens};
  std::vector<std::uint32_t> lengths;
  for (const GrpoText& text : texts_) {
    lengths.push_back(inputs_.samples.lengths()[text.prompt] + static_cast<std::uint32_t>(text.tokens.size()));
    sizes.num_tokens += text.tokens.size();
  }
  BatchOptions options;
  options.shuffle = false;
  options.global_batch = texts_.size();
  options.micro_batch = config_.batches.micro_batch;
  options.steps = 1;
  const std::vector<Samples> plan = BatchPlan(lengths, options).micro_batches(0);
  sizes.num_micro_batches = plan.size();
  batches_.items.clear();
  for (const Samples& texts : plan) {
    Samples& prompts = batches_.items.emplace_back();
    for (const std::uint64_t text : texts) prompts.push_back(texts_[text].prompt);
  }
  const IndexRange own = micro_batches_of(plan.size(), inputs_.world.rank(), inputs_.world.size());
  for (std::uint64_t i = own.begin; i < own.end; ++i) batches_.own.push_back(micro_batch(plan[i], sizes));
}

// A sequence is a prompt and its text. Row t has a label if the model generated token t + 1.
MicroBatch GrpoSteps::micro_batch(const Samples& texts, const ReductionSizes& sizes) const {
  std::vector<SampleTokens> sequences;
  std::uint64_t num_tokens = 0;
  for (const std::uint64_t number : texts) {
    const std::vector<TokenId>& written = texts_[number].tokens;
    std::vector<TokenId> ids = inputs_.samples.tokens(texts_[number].prompt);
    std::vector<std::uint8_t> marks(ids.size(), 0);
    ids.insert(ids.end(), written.begin(), written.end());
    marks.resize(ids.size(), 1);
    sequences.push_back({std::move(ids), std::move(marks)});
    num_tokens += written.size();
  }
  MicroBatch batch = micro_batch_of(sequences, true);
  for (const std::uint64_t number : texts) {
    const GrpoText& text = texts_[number];
    batch.texts.push_back(
        {text.advantage, token_weight(config_.grpo.reduction, sizes, text.tokens.size(), num_tokens)});
  }
  return batch;
}

PolicyCurve GrpoSteps::curve(const StepResult& result) const {
  std::vector<double> rewards;
  double sum = 0, truncated = 0;
  for (const GrpoText& text : texts_) {
    rewards.push_back(text.reward);
    sum += text.reward;
    truncated += text.truncated ? 1 : 0;
  }
  const auto count = static_cast<double>(texts_.size());
  PolicyCurve curve;
  curve.reward = static_cast<float>(sum / count);
  curve.reward_std = static_cast<float>(mean_group_deviation(rewards, config_.grpo.num_generations));
  curve.kl = static_cast<float>(result.policy.kl);
  curve.clip_ratio = static_cast<float>(result.policy.clipped);
  curve.truncated = static_cast<float>(truncated / count);
  curve.tokens = result.tokens;
  curve.texts = texts_.size();
  return curve;
}

std::optional<UnreadCounts> GrpoSteps::unread() const {
  UnreadCounts counts{};
  for (const GrpoText& text : texts_) {
    if (!text.unread) return std::nullopt;
    ++counts.at(static_cast<std::size_t>(*text.unread));
  }
  return counts;
}

namespace {

constexpr CurveColumn kPolicyColumns[] = {
    {train_column::kReward, [](const float* numbers) { return PolicyCurve::of(numbers).reward; }},
    {train_column::kRewardStd, [](const float* numbers) { return PolicyCurve::of(numbers).reward_std; }},
    {train_column::kKl, [](const float* numbers) { return PolicyCurve::of(numbers).kl; }},
    {train_column::kClipRatio, [](const float* numbers) { return PolicyCurve::of(numbers).clip_ratio; }},
    {train_column::kCompletionLength,
     [](const float* numbers) {
       const PolicyCurve curve = PolicyCurve::of(numbers);
       return static_cast<float>(static_cast<double>(curve.tokens) / static_cast<double>(curve.texts));
     }},
    {train_column::kTruncated, [](const float* numbers) { return PolicyCurve::of(numbers).truncated; }}};

// kl is not checked: it may be not finite in a step that was skipped.
void check_policy(const ResultsReader& file, std::uint64_t first, std::uint64_t count, FaultList& faults) {
  const auto column = [&](const Column<float>& one) { return file.rows(one, first, count); };
  const auto deviation = column(train_column::kRewardStd), clipped = column(train_column::kClipRatio),
             truncated = column(train_column::kTruncated), length = column(train_column::kCompletionLength);
  for (std::uint64_t i = 0; i < count; ++i) {
    if (!(deviation[i] >= 0)) faults.add("the deviation of the rewards of step {} is {}", first + i + 1, deviation[i]);
    for (const float part : {clipped[i], truncated[i]}) {
      if (!(part >= 0 && part <= 1.000001f)) faults.add("a part of step {} is {}", first + i + 1, part);
    }
    if (!(length[i] >= 1)) faults.add("the texts of step {} have {} tokens on average", first + i + 1, length[i]);
  }
}

}  // namespace

constinit const CurveSet kPolicyCurves = {
    .width = 8, .columns = kPolicyColumns, .check = check_policy, .tokens = [](const float* numbers) {
      return PolicyCurve::of(numbers).tokens;
    }};

}  // namespace magister
