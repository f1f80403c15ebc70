// One step in the order in which it happens; see trainer.h.
#include "magister/train/trainer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "magister/core/error.h"
#include "magister/train/gradient_tree.h"

namespace magister {

Trainer::Trainer(const ParameterLayout& layout, const TensorFile& file, const TrainerOptions& options,
                 const Communicator& world, int num_threads)
    : layout_(layout),
      lora_(options.lora ? std::optional<LoraLayout>(std::in_place, layout_, *options.lora) : std::nullopt),
      options_(options),
      world_(world),
      pool_(num_threads),
      frozen_(lora_ ? layout_.read(file) : at::Tensor()),
      weights_(lora_ ? lora_->first_values() : layout_.read(file)),
      state_(new_optimizer_state(trained())) {}

Trainer::Outcome Trainer::run(const MicroBatch& batch, double scale, MicroGradient& gradient) const {
  const at::Tensor& weights = model_weights();
  TrunkPass pass(layout_, weights, batch.tokens, options_.recompute,
                 lora_ ? std::optional<LoraWeights>({*lora_, weights_}) : std::nullopt);
  const ModelConfig& config = layout_.description().config;
  HeadLossOptions head;
  head.distill = options_.distill;
  head.scaling = {config.logit_scale, config.final_logit_softcapping};
  const auto zeros = [&](std::size_t parameter) { return at::zeros(layout_.all()[parameter].shape, at::kFloat); };
  at::Tensor head_gradient = lora_ ? at::Tensor() : zeros(layout_.head());
  HeadLossTargets targets = batch.targets;
  if (batch.read_teacher) batch.read_teacher(targets);
  const HeadLossResult result =
      head_loss(pass.hidden_TD(), layout_.view(weights, layout_.head()), targets, head, scale, head_gradient);
  targets = {};
  if (!std::isfinite(result.loss)) return {result.loss, 0.0};
  const bool tied = layout_.head() == layout_.embeddings();
  at::Tensor embedding_gradient = lora_ || tied ? head_gradient : zeros(layout_.embeddings());
  if (!lora_ && !tied) gradient.put(layout_.head(), std::exchange(head_gradient, {}));
  pass.backward(result.hidden_gradient_TD, embedding_gradient, gradient);
  if (!lora_) gradient.put(layout_.embeddings(), embedding_gradient);
  return {result.loss, gradient.finite() ? 1.0 : 0.0};
}

namespace {

std::uint64_t num_labels(std::span<const MicroBatch> batches) {
  std::uint64_t count = 0;
  for (const MicroBatch& batch : batches)
    count += static_cast<std::uint64_t>((batch.targets.labels_T >= 0).sum().item<std::int64_t>());
  return count;
}

// By number of the micro-batch, over all ranks. Collective over world.
template <typename T>
std::vector<T> gathered(const Communicator& world, const std::vector<T>& own) {
  const std::string bytes(reinterpret_cast<const char*>(own.data()), own.size() * sizeof(T));
  std::vector<T> all;
  for (const std::string& part : world.all_gather(bytes)) {
    std::vector<T> numbers(part.size() / sizeof(T));
    std::memcpy(numbers.data(), part.data(), part.size());
    all.insert(all.end(), numbers.begin(), numbers.end());
  }
  return all;
}

}  // namespace

StepResult Trainer::differentiate(std::uint64_t num_micro_batches, std::span<const MicroBatch> own,
                                  at::Tensor& gradient, const std::function<void()>& alive) {
  const IndexRange range = micro_batches_of(num_micro_batches, world_.rank(), world_.size());
  MAGISTER_ASSERT(own.size() == range.size());
  StepResult result;
  result.tokens = world_.sum(num_labels(own));
  MAGISTER_CHECK(result.tokens > 0, ExitCode::kInternal,
                 "a step of {} micro-batches has no token to learn from (its loss would be 0 / 0); report this",
                 num_micro_batches);
  const double scale = 1.0 / static_cast<double>(result.tokens);
  GradientTree tree(world_, num_micro_batches, options_.fast_sums);
  std::vector<Outcome> outcomes(own.size());
  pool_.run(static_cast<std::int64_t>(own.size()), [&](std::int64_t index, int) {
    const auto i = static_cast<std::size_t>(index);
    at::Tensor other_half = tree.take_other_half(range.begin + i);
    const bool pair = other_half.defined();
    MicroGradient micro_gradient(trained(), std::move(other_half));
    outcomes[i] = run(own[i], scale, micro_gradient);
    tree.add(range.begin + i, micro_gradient.take(), pair);
    if (alive) alive();
  });
  const std::vector<Outcome> all = gathered(world_, outcomes);
  for (std::size_t i = 0; i < all.size(); ++i) {
    result.loss += all[i].loss;
    if (all[i].finite == 0) result.not_finite.push_back(i);
  }
  if (result.not_finite.empty()) gradient = tree.sum(trained().flat_size());
  return result;
}

StepResult Trainer::step(std::uint64_t num_micro_batches, std::span<const MicroBatch> own, double lr,
                         const std::function<void()>& alive) {
  at::Tensor gradient;
  StepResult result = differentiate(num_micro_batches, own, gradient, alive);
  result.grad_norm = gradient.defined() ? global_norm(gradient, pool_) : std::nan("");
  result.skipped = !std::isfinite(result.loss) || !std::isfinite(result.grad_norm);
  if (result.skipped) return result;
  const double clip = options_.optimizer.clip;
  const double scale = clip > 0 ? std::min(1.0, clip / (result.grad_norm + 1e-6)) : 1.0;
  adamw_update(trained(), options_.optimizer, lr, scale, gradient, weights_, state_, pool_);
  return result;
}

std::vector<std::pair<std::string, std::uint64_t>> training_bytes(const ModelConfig& config, std::int64_t adapter,
                                                                  bool recompute, std::int64_t tokens,
                                                                  std::int64_t longest, std::uint64_t own_micro_batches,
                                                                  int num_threads) {
  const std::uint64_t weights = 4 * config.num_parameters(), factors = 4 * static_cast<std::uint64_t>(adapter);
  const std::uint64_t learnt = factors > 0 ? factors : weights;
  const auto threads = static_cast<std::uint64_t>(num_threads);
  // One a thread, what waits on each level of the tree, and the sum over ranks.
  const std::uint64_t gradients = std::min(own_micro_batches, threads + std::bit_width(own_micro_batches)) + 1;
  const std::uint64_t pass = trunk_bytes(config, tokens, longest, recompute) +
                             head_loss_bytes(tokens, config.hidden_size, config.vocab_size, 1);
  return {{"weights", weights + factors},
          {"gradients", gradients * learnt},
          {"optimizer", 2 * learnt},
          {"activations", std::min(own_micro_batches, threads) * pass}};
}

}  // namespace magister
