// See policy_steps.h. Micro-batches are a function of the texts' lengths alone.
#include "tasks/train/policy_steps.h"

#include <ATen/ATen.h>

#include "magister/core/error.h"
#include "magister/train/gradient_tree.h"

namespace magister {

// A whole number of f32 is exact up to 2^24: tokens are kept in two parts, and no step has so many texts.
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

PolicySteps::PolicySteps(const ModelRun& run, const Communicator& world, const TrainConfig& config,
                         const TrainingData& data, Trainer& trainer, const TextRules& rules)
    : world_(world),
      config_(config),
      data_(data),
      trainer_(trainer),
      writer_(run, world, config, data, trainer, rules),
      heartbeat_([&run] { run.work.live_together("compute log-probabilities"); }) {}

bool PolicySteps::prepare(std::uint64_t update, const Samples& prompts) {
  if (update % config_.grpo.num_iterations != 0) return true;
  own_.clear();  // before the generator takes its memory
  auto texts = writer_.write(update, prompts);
  if (!texts) return false;
  texts_ = std::move(*texts);
  make_micro_batches();
  const bool is_compared = config_.trainer.policy.beta > 0, is_repeated = config_.grpo.num_iterations > 1;
  const auto references = is_compared ? trainer_.label_logprobs(own_, true, heartbeat_) : std::vector<at::Tensor>();
  const auto old = is_repeated ? trainer_.label_logprobs(own_, false, heartbeat_) : std::vector<at::Tensor>();
  for (std::size_t i = 0; i < own_.size(); ++i) {
    if (is_compared) own_[i].reference_logprob_T = references[i];
    if (is_repeated) own_[i].old_logprob_T = old[i];
  }
  return true;
}

void PolicySteps::make_micro_batches() {
  ReductionSizes sizes{texts_.size(), 0, 0, config_.grpo.max_new_tokens};
  std::vector<std::uint32_t> lengths;
  for (const RolloutText& text : texts_) {
    lengths.push_back(data_.lengths()[text.prompt] + static_cast<std::uint32_t>(text.tokens.size()));
    sizes.num_tokens += text.tokens.size();
  }
  BatchOptions options;
  options.shuffle = false;
  options.global_batch = texts_.size();
  options.micro_batch = config_.batches.micro_batch;
  options.steps = 1;
  const std::vector<Samples> plan = BatchPlan(lengths, options).micro_batches(0);
  sizes.num_micro_batches = plan.size();
  batches_.clear();
  for (const Samples& texts : plan) {
    Samples& prompts = batches_.emplace_back();
    for (const std::uint64_t text : texts) prompts.push_back(texts_[text].prompt);
  }
  const IndexRange own = micro_batches_of(plan.size(), world_.rank(), world_.size());
  for (std::uint64_t i = own.begin; i < own.end; ++i) own_.push_back(micro_batch(plan[i], sizes));
}

// Every text stands behind its prompt; row t has a label where the model wrote token t + 1.
MicroBatch PolicySteps::micro_batch(const Samples& texts, const ReductionSizes& sizes) const {
  MicroBatch batch;
  std::vector<std::int64_t> ids, labels;
  std::uint64_t num_tokens = 0;
  batch.tokens.cu_seqlens.push_back(0);
  for (const std::uint64_t number : texts) {
    const RolloutText& text = texts_[number];
    const std::vector<TokenId> prompt = data_.tokens(text.prompt);
    ids.insert(ids.end(), prompt.begin(), prompt.end());
    ids.insert(ids.end(), text.tokens.begin(), text.tokens.end());
    labels.insert(labels.end(), prompt.size() - 1, -100);
    labels.insert(labels.end(), text.tokens.begin(), text.tokens.end());
    labels.push_back(-100);
    batch.tokens.cu_seqlens.push_back(static_cast<std::int64_t>(ids.size()));
    num_tokens += text.tokens.size();
  }
  batch.tokens.token_ids_T = at::tensor(ids, at::kLong);
  batch.targets.labels_T = at::tensor(labels, at::kLong);
  for (const std::uint64_t number : texts) {
    const RolloutText& text = texts_[number];
    batch.texts.push_back(
        {text.advantage, token_weight(config_.grpo.reduction, sizes, text.tokens.size(), num_tokens)});
  }
  return batch;
}

PolicyCurve PolicySteps::curve(const StepResult& result) const {
  std::vector<double> rewards;
  double sum = 0, truncated = 0;
  for (const RolloutText& text : texts_) {
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

std::optional<UnreadCounts> PolicySteps::unread() const {
  UnreadCounts counts{};
  for (const RolloutText& text : texts_) {
    if (!text.unread) return std::nullopt;
    ++counts.at(static_cast<std::size_t>(*text.unread));
  }
  return counts;
}

}  // namespace magister
