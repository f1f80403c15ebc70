// One step in the order in which it happens; see trainer.h.
#include "magister/train/trainer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <utility>

#include "magister/core/error.h"
#include "magister/device/upload.h"
#include "magister/parallel/gathered.h"
#include "magister/train/first_weights.h"
#include "magister/train/gradient_tree.h"

namespace magister {
namespace {

int passes_at_once(const TrainingDevice& device, const TrainerOptions& options, int num_threads) {
  const int most = device.passes_at_once(num_threads);
  return options.passes_at_once > 0 ? std::min(most, options.passes_at_once) : most;
}

}  // namespace

Trainer::Trainer(const ParameterLayout& layout, const TensorFile& file, const TrainerOptions& options,
                 const Communicator& world, int num_threads)
    : layout_(layout),
      lora_(options.lora ? std::optional<LoraLayout>(std::in_place, layout_, *options.lora) : std::nullopt),
      options_(options),
      world_(world),
      sums_(world.duplicate()),
      device_(options.gpu),
      pool_(num_threads),
      copies_(device_.device(), pool_),
      host_(world.split_by_host()),
      // Where every rank updates all of them there, they change while others read.
      model_(world, host_, layout_.flat_size(), lora_ || options.divides_optimizer || options.optimizer_on_gpu),
      adapter_(lora_ ? lora_->first_values() : at::Tensor()),
      memory_(options.recompute, passes_at_once(device_, options, num_threads)),
      shards_(trained().flat_size(), sharing().size()),
      state_(new_optimizer_state(shards_.size(sharing().rank()),
                                 options.optimizer_on_gpu ? device_.device() : at::Device(at::kCPU))) {
  if (const int passes = passes_at_once(device_, options, num_threads); passes < num_threads)
    fewer_passes_.emplace(passes);
  read_first_weights(layout_, file, model_, host_, options.new_head, pool_);
  if (options.policy.beta != 0 && !lora_) {
    reference_ = HostWeights(world, host_, layout_.flat_size(), true);
    read_first_weights(layout_, file, reference_, host_, {}, pool_);
  }
  if (!options.optimizer_on_gpu) return;
  MAGISTER_ASSERT(device_.has_gpu_code());
  send_weights();
  gpu_optimizer_.emplace(trained(), shards_, sharing().rank(), *device_.queue());
  // Needed no more but where ranks exchange what they have updated, and where texts are written.
  if (sharing().size() == 1 && options.preference.objective != Objective::kGrpo) model_ = HostWeights();
}

void Trainer::send(const at::Tensor& here, at::Tensor& there) {
  if (!there.defined()) there = at::empty(here.sizes(), here.options().device(device_.device()));
  copies_.to_device(here, there);
}

void Trainer::send_weights() {
  if (!device_.has_gpu_code() || is_sent_) return;
  if (!lora_ || !model_there_.defined()) send(model_.tensor(), model_there_);
  if (lora_) send(adapter_, adapter_there_);
  is_sent_ = true;
}

at::Tensor Trainer::zeros(at::IntArrayRef shape) const {
  return at::zeros(shape, at::TensorOptions(at::kFloat).device(device_.device()));
}

TrunkPass Trainer::pass_of(const MicroBatch& batch, bool recompute) const {
  return TrunkPass(layout_, model_weights(), batch.tokens,
                   TrunkOptions{recompute, options_.bf16, device_.has_gpu_code()},
                   lora_ ? std::optional<LoraWeights>({*lora_, adapter_weights()}) : std::nullopt);
}

HeadLossOptions Trainer::head_options() const {
  const ModelConfig& config = layout_.description().config;
  HeadLossOptions options;
  options.distill = options_.distill;
  options.gpu_code = device_.has_gpu_code();
  options.bf16 = options.gpu_code && options_.bf16;
  options.scaling = {config.logit_scale / options_.policy.temperature, config.final_logit_softcapping};
  return options;
}

Trainer::Outcome Trainer::run(const MicroBatch& batch, double scale, MicroGradient& gradient, bool recompute) const {
  TrunkPass pass = pass_of(batch, recompute);
  const auto zeros_of = [&](std::size_t parameter) { return zeros(layout_.all()[parameter].shape); };
  HeadGradients of_head{{}, lora_ ? at::Tensor() : zeros_of(layout_.head())};
  Outcome outcome = (this->*losses_of_objective())(batch, pass, scale, &of_head);
  outcome.finite = 0.0;
  if (!std::isfinite(outcome.loss)) return outcome;
  const bool tied = layout_.head() == layout_.embeddings();
  at::Tensor embedding_gradient = lora_ || tied ? of_head.head : zeros_of(layout_.embeddings());
  if (!lora_ && !tied) gradient.put(layout_.head(), std::exchange(of_head.head, {}));
  pass.backward(of_head.hidden_TD, embedding_gradient, gradient);
  if (!lora_) gradient.put(layout_.embeddings(), embedding_gradient);
  if (gradient.finite()) outcome.finite = 1.0;
  return outcome;
}

Trainer::Outcome Trainer::run_within_memory(const MicroBatch& batch, double scale, MicroGradient& gradient) {
  Outcome outcome;
  memory_.run(batch.tokens.token_ids_T.numel(),
              [&](bool recompute) { outcome = run(batch, scale, gradient, recompute); });
  return outcome;
}

Trainer::Losses Trainer::losses_of_objective() const {
  switch (options_.preference.objective) {
    case Objective::kDpo:
      return &Trainer::dpo_losses;
    case Objective::kReward:
      return &Trainer::reward_losses;
    case Objective::kGrpo:
      return &Trainer::policy_losses;
    case Objective::kValue:
      return &Trainer::value_losses;
    case Objective::kTokens:
      break;
  }
  return &Trainer::token_losses;
}

std::vector<HeldOutSums> Trainer::losses(std::span<const MicroBatch> batches, const std::function<void()>& heartbeat) {
  std::vector<HeldOutSums> all(batches.size());
  send_weights();
  pass_pool().run(static_cast<std::int64_t>(batches.size()), [&](std::int64_t index, int) {
    const auto i = static_cast<std::size_t>(index);
    // Recomputing means that no graph is kept.
    const Outcome outcome = (this->*losses_of_objective())(batches[i], pass_of(batches[i], true), 1.0, nullptr);
    all[i] = {outcome.loss, outcome.rewards};
    if (heartbeat) heartbeat();
  });
  return all;
}

Trainer::Outcome Trainer::token_losses(const MicroBatch& batch, const TrunkPass& pass, double scale,
                                       HeadGradients* gradients) const {
  HeadLossTargets targets = batch.targets;
  if (batch.read_teacher) batch.read_teacher(targets);
  HeadLossOptions options = head_options();
  options.gradient = gradients != nullptr;
  at::Tensor none;
  const HeadLossResult result =
      head_loss(pass.hidden_TD(), head(), targets, options, scale, gradients != nullptr ? gradients->head : none,
                fewer_passes_ ? &pool_ : nullptr);
  if (gradients != nullptr) gradients->hidden_TD = result.hidden_gradient_TD;
  Outcome outcome;
  outcome.loss = result.loss;
  return outcome;
}

namespace {

struct SequenceSum {
  double logprob = 0;
  std::int64_t tokens = 0;  // that have a label
};

// By sequence. A row with a label has a log-probability, which is not finite where a logit is not.
std::vector<SequenceSum> sums_of(const MicroBatch& batch, const at::Tensor& label_logprob_T) {
  const auto* labels = batch.targets.labels_T.const_data_ptr<std::int64_t>();
  const auto* logprobs = label_logprob_T.const_data_ptr<float>();
  const std::vector<std::int64_t>& begins = batch.tokens.cu_seqlens;
  std::vector<SequenceSum> sums(begins.size() - 1);
  for (std::size_t s = 0; s < sums.size(); ++s) {
    for (std::int64_t t = begins[s]; t < begins[s + 1]; ++t) {
      if (labels[t] < 0) continue;
      sums[s].logprob += logprobs[t];
      ++sums[s].tokens;
    }
  }
  return sums;
}

void add(PairRewards& sum, const PairLoss& pair) {
  sum.chosen += pair.chosen_reward;
  sum.rejected += pair.rejected_reward;
  sum.accuracy += pair.chosen_reward > pair.rejected_reward ? 1 : 0;
}

}  // namespace

// The loss of a pair is a function of two sums of log-probabilities, so the gradient of a row is that of its cross entropy times minus the
// derivative by its sequence's sum: the head is read once for the sums and once for the gradients, tile by tile.
Trainer::Outcome Trainer::dpo_losses(const MicroBatch& batch, const TrunkPass& pass, double scale,
                                     HeadGradients* gradients) const {
  HeadLossOptions options = head_options();
  options.gradient = false;
  at::Tensor none;
  const HeadLossResult first = head_loss(pass.hidden_TD(), head(), batch.targets, options, scale, none);
  const std::vector<SequenceSum> sums = sums_of(batch, first.label_logprob_T);
  MAGISTER_ASSERT(sums.size() == 2 * batch.pairs.size());
  Outcome outcome;
  HeadLossTargets targets = batch.targets;
  targets.row_weight_T = at::zeros({targets.labels_T.size(0)}, at::kFloat);
  const auto weigh = [&](std::size_t sequence, double gradient) {
    const std::int64_t begin = batch.tokens.cu_seqlens[sequence], end = batch.tokens.cu_seqlens[sequence + 1];
    targets.row_weight_T.narrow(0, begin, end - begin).fill_(-gradient);
  };
  for (std::size_t i = 0; i < batch.pairs.size(); ++i) {
    const SequenceSum &chosen = sums[2 * i], &rejected = sums[2 * i + 1];
    const PairLoss pair =
        dpo_loss(options_.preference, {chosen.logprob - batch.pairs[i].chosen_reference, chosen.tokens},
                 {rejected.logprob - batch.pairs[i].rejected_reference, rejected.tokens});
    outcome.loss += scale * pair.loss;
    add(outcome.rewards, pair);
    weigh(2 * i, pair.chosen_gradient);
    weigh(2 * i + 1, pair.rejected_gradient);
  }
  if (!std::isfinite(outcome.loss) || gradients == nullptr) return outcome;
  options.gradient = true;
  const HeadLossResult second = head_loss(pass.hidden_TD(), head(), targets, options, scale, gradients->head);
  gradients->hidden_TD = second.hidden_gradient_TD;
  return outcome;
}

// A reward is the product of one row with the head's only row, in f64.
Trainer::Outcome Trainer::reward_losses(const MicroBatch& batch, const TrunkPass& pass, double scale,
                                        HeadGradients* gradients) const {
  const at::Tensor weight_D = head().select(0, 0);
  if (gradients != nullptr) gradients->hidden_TD = at::zeros_like(pass.hidden_TD());
  const auto reward = [&](std::int64_t row) {
    return at::dot(pass.hidden_TD().select(0, row).to(at::kDouble), weight_D.to(at::kDouble)).item<double>();
  };
  Outcome outcome;
  for (const Pair& given : batch.pairs) {
    const PairLoss pair =
        reward_loss(options_.preference, reward(given.chosen_row), reward(given.rejected_row), given.margin);
    outcome.loss += scale * pair.loss;
    add(outcome.rewards, pair);
    if (gradients == nullptr) continue;
    for (const auto& [row, gradient] :
         {std::pair(given.chosen_row, pair.chosen_gradient), std::pair(given.rejected_row, pair.rejected_gradient)}) {
      gradients->hidden_TD.select(0, row).add_(weight_D, scale * gradient);
      gradients->head.select(0, 0).add_(pass.hidden_TD().select(0, row), scale * gradient);
    }
  }
  return outcome;
}

Trainer::Outcome Trainer::value_losses(const MicroBatch& batch, const TrunkPass& pass, double scale,
                                       HeadGradients* gradients) const {
  std::vector<std::int64_t> rows;
  for (const ValueText& text : batch.values) rows.insert(rows.end(), text.rows.begin(), text.rows.end());
  const at::Tensor rows_R = upload(at::tensor(rows, at::kLong), device_.device());
  const ValueLoss all =
      value_loss(options_.value, batch.values, pass.hidden_TD().index_select(0, rows_R), head(), scale);
  if (gradients != nullptr) {
    gradients->hidden_TD = at::zeros_like(pass.hidden_TD());
    gradients->hidden_TD.index_copy_(0, rows_R, all.hidden_gradient_RD);
    gradients->head.add_(all.head_gradient_LD);
  }
  Outcome outcome;
  outcome.loss = all.loss;
  outcome.value = {all.label, all.value};
  return outcome;
}

std::vector<std::vector<double>> Trainer::sequence_logprobs(std::span<const MicroBatch> batches,
                                                            const std::function<void()>& heartbeat) {
  const std::vector<at::Tensor> logprobs = label_logprobs(batches, false, heartbeat);
  std::vector<std::vector<double>> all(batches.size());
  for (std::size_t i = 0; i < batches.size(); ++i) {
    for (const SequenceSum& sum : sums_of(batches[i], logprobs[i])) all[i].push_back(sum.logprob);
  }
  return all;
}

namespace {

// Tokens that are learnt from: those that have a label; of a reward or value model all that it reads.
std::uint64_t num_tokens(std::span<const MicroBatch> batches, Objective objective) {
  std::uint64_t count = 0;
  for (const MicroBatch& batch : batches) {
    const at::Tensor& labels_T = batch.targets.labels_T;
    count += static_cast<std::uint64_t>(objective == Objective::kReward || objective == Objective::kValue
                                            ? labels_T.numel()
                                            : (labels_T >= 0).sum().item<std::int64_t>());
  }
  return count;
}

// Or texts of a value model.
std::uint64_t num_pairs(std::span<const MicroBatch> batches) {
  std::uint64_t count = 0;
  for (const MicroBatch& batch : batches) count += batch.pairs.size() + batch.values.size();
  return count;
}

}  // namespace

StepResult Trainer::differentiate(std::uint64_t num_micro_batches, std::span<const MicroBatch> own,
                                  at::Tensor& gradient, const std::function<void()>& heartbeat) {
  const IndexRange range = micro_batches_of(num_micro_batches, world_.rank(), world_.size());
  MAGISTER_ASSERT(own.size() == range.size());
  StepResult result;
  const Objective objective = options_.preference.objective;
  const bool of_pairs =
      objective == Objective::kDpo || objective == Objective::kReward || objective == Objective::kValue;
  result.tokens = world_.sum(num_tokens(own, objective));
  MAGISTER_CHECK(result.tokens > 0, ExitCode::kInternal,
                 "a step of {} micro-batches has no token to learn from (its loss would be 0 / 0); report this",
                 num_micro_batches);
  const auto tokens = static_cast<double>(result.tokens);
  // Of GRPO every text brings its own.
  const double scale = objective == Objective::kGrpo ? 1.0
                       : of_pairs                    ? 1.0 / static_cast<double>(world_.sum(num_pairs(own)))
                                                     : 1.0 / tokens;
  StagedCopies* const copies = device_.has_gpu_code() ? &copies_ : nullptr;
  GradientTree tree(
      sums_, num_micro_batches, trained().flat_size(),
      {options_.fast_sums, options_.divides_optimizer, copies, copies != nullptr && options_.sums_on_gpu, sum_stays()});
  std::vector<Outcome> outcomes(own.size());
  send_weights();
  pass_pool().run(static_cast<std::int64_t>(own.size()), [&](std::int64_t index, int) {
    const auto i = static_cast<std::size_t>(index);
    MicroGradient micro_gradient(trained(), tree, range.begin + i, sums_device(), copies);
    outcomes[i] = run_within_memory(own[i], scale, micro_gradient);
    micro_gradient.finish();
    if (heartbeat) heartbeat();
  });
  at::Tensor sum = tree.finish();
  const std::vector<Outcome> all = gathered(world_, outcomes);
  for (std::size_t i = 0; i < all.size(); ++i) {
    result.loss += all[i].loss;
    result.rewards.chosen += all[i].rewards.chosen * scale;
    result.rewards.rejected += all[i].rewards.rejected * scale;
    result.rewards.accuracy += all[i].rewards.accuracy * scale;
    result.value.label += all[i].value.label * scale;
    result.value.value += all[i].value.value * scale;
    result.policy.kl += all[i].policy.kl / tokens;
    result.policy.clipped += all[i].policy.clipped / tokens;
    if (all[i].finite == 0) result.not_finite.push_back(i);
  }
  if (result.not_finite.empty()) gradient = std::move(sum);
  return result;
}

StepResult Trainer::step(std::uint64_t num_micro_batches, std::span<const MicroBatch> own, double lr,
                         const std::function<void()>& heartbeat) {
  at::Tensor gradient;
  StepResult result = differentiate(num_micro_batches, own, gradient, heartbeat);
  result.grad_norm = gradient.defined() ? norm_of(gradient) : std::nan("");
  result.skipped = !std::isfinite(result.loss) || !std::isfinite(result.grad_norm);
  if (result.skipped) return result;
  const double clip = options_.optimizer.clip;
  const double scale = clip > 0 ? std::min(1.0, clip / (result.grad_norm + 1e-6)) : 1.0;
  update(lr, scale, gradient);
  return result;
}

// Where it is not added up on the device alone, every rank has it on the host.
double Trainer::norm_of(const at::Tensor& gradient) {
  return norm_of_blocks(sharing(), shards_,
                        sum_stays() ? gpu_optimizer_->block_squares(gradient) : block_squares(gradient, pool_));
}

void Trainer::update(double lr, double scale, const at::Tensor& gradient) {
  if (!gpu_optimizer_) {
    adamw_update(trained(), shards_, sharing().rank(), options_.optimizer, lr, scale, gradient, weights_here(), state_,
                 pool_);
    gather_weights();
    is_sent_ = false;
    return;
  }
  if (sum_stays()) {
    gpu_optimizer_->update(options_.optimizer, lr, scale, gradient, weights_there(), state_);
  } else {
    gpu_optimizer_->update_from_host(options_.optimizer, lr, scale, gradient, weights_there(), state_, copies_);
  }
  if (sharing().size() == 1) return;
  // No rank changes the host's copy before the others have read it: they meet in the sums between.
  for (std::int64_t bucket = 0; bucket < shards_.num_buckets(); ++bucket) {
    const FlatRange own = shards_.piece(bucket, sharing().rank());
    copies_.to_host(weights_there().narrow(0, own.begin, own.size()), weights_here().narrow(0, own.begin, own.size()));
  }
  gather_weights();
  copies_.to_device(weights_here(), weights_there());
}

void Trainer::gather_weights() {
  lora_ ? gather_pieces(sharing(), shards_, adapter_) : model_.gather(sharing(), host_, shards_);
}

}  // namespace magister
