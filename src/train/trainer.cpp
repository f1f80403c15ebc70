// Implements Trainer in the order of a step; see trainer.h.
#include "magister/train/trainer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <utility>

#include "magister/core/error.h"
#include "magister/parallel/gathered.h"
#include "magister/train/first_weights.h"
#include "magister/train/gradient_tree.h"
#include "train/device_sums.h"
#include "train/objective_loss.h"

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
      loss_(objective_loss(options)),
      world_(world),
      sums_(world.duplicate()),
      device_(options.gpu),
      pool_(num_threads),
      copies_(device_.device(), pool_),
      host_(world.split_by_host()),
      // The ranks of a host may share one copy in these cases. In all others a rank updates all weights on the host,
      // and would change them while other ranks still read them.
      model_(world, host_, layout_.flat_size(),
             lora_ || options.divides_optimizer || world.min(std::uint64_t{options.optimizer_on_gpu ? 1u : 0u}) != 0),
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
  copy_queue_ = make_copy_queue(*device_.queue());
  if (options.gpus_exchange && world.size() > 1) {
    MAGISTER_ASSERT(options.sums_on_gpu);
    exchange_ = make_device_exchange(world, *device_.queue(), options.fast_sums);
  }
  // The host needs its copy only if ranks exchange updated weights through it.
  if (sharing().size() == 1 || exchange_) model_ = HostWeights();
}

void Trainer::close() {
  if (exchange_) exchange_->close();
}

void Trainer::send(const at::Tensor& here, at::Tensor& there) {
  if (!there.defined()) there = at::empty(here.sizes(), here.options().device(device_.device()));
  copies_.to_device(here, there);
}

void Trainer::send_weights() {
  if (!device_.has_gpu_code() || is_sent_) return;
  if (!lora_ || !model_on_device_.defined()) send(model_.tensor(), model_on_device_);
  if (lora_) send(adapter_, adapter_on_device_);
  is_sent_ = true;
}

at::Tensor Trainer::zeros(at::IntArrayRef shape) const {
  return at::zeros(shape, at::TensorOptions(at::kFloat).device(device_.device()));
}

TrunkPass Trainer::pass_of(const MicroBatch& batch, bool recompute, bool learns) const {
  return TrunkPass(layout_, model_weights(), batch.tokens,
                   TrunkOptions{recompute, options_.bf16, device_.has_gpu_code(), learns},
                   lora_ ? std::optional<LoraWeights>({*lora_, adapter_weights()}) : std::nullopt);
}

at::Tensor Trainer::head_of(const at::Tensor& model) const {
  const at::Tensor head_VD = layout_.view(model, layout_.head());
  if (!layout_.head_bias()) return head_VD;
  return at::cat({head_VD, layout_.view(model, *layout_.head_bias()).unsqueeze(1)}, 1);
}

at::Tensor Trainer::head_rows(const at::Tensor& hidden_TD) const {
  if (!layout_.head_bias()) return hidden_TD;
  return at::cat({hidden_TD, at::ones({hidden_TD.size(0), 1}, hidden_TD.options())}, 1);
}

HeadPass Trainer::head_pass(const at::Tensor& hidden_TD) const {
  return {options_,       hidden_TD,        head_of(model_weights()),
          head_options(), device_.device(), fewer_passes_ ? &pool_ : nullptr};
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

LossSums Trainer::run(const MicroBatch& batch, double scale, MicroGradient& gradient, bool recompute) const {
  TrunkPass pass = pass_of(batch, recompute, true);
  const auto zeros_of = [&](std::size_t parameter) { return zeros(layout_.all()[parameter].shape); };
  const at::Tensor hidden_TD = head_rows(pass.hidden_TD());
  const std::vector<std::int64_t>& shape = layout_.all()[layout_.head()].shape;
  HeadGradients of_head{{}, lora_ ? at::Tensor() : zeros({shape[0], hidden_TD.size(1)})};
  LossSums sums = loss_.losses(batch, head_pass(hidden_TD), scale, &of_head);
  sums.finite = 0.0;
  if (!std::isfinite(sums.loss)) return sums;
  if (layout_.head_bias()) {
    of_head.hidden_TD = of_head.hidden_TD.narrow(1, 0, shape[1]).contiguous();
    if (!lora_) {
      gradient.put(*layout_.head_bias(), of_head.head.select(1, shape[1]).contiguous());
      of_head.head = of_head.head.narrow(1, 0, shape[1]).contiguous();
    }
  }
  const bool tied = layout_.head() == layout_.embeddings();
  at::Tensor embedding_gradient = lora_ || tied ? of_head.head : zeros_of(layout_.embeddings());
  if (!lora_ && !tied) gradient.put(layout_.head(), std::exchange(of_head.head, {}));
  pass.backward(of_head.hidden_TD, embedding_gradient, gradient);
  if (!lora_) gradient.put(layout_.embeddings(), embedding_gradient);
  if (gradient.finite()) sums.finite = 1.0;
  return sums;
}

LossSums Trainer::run_within_memory(const MicroBatch& batch, double scale, MicroGradient& gradient) {
  LossSums sums;
  memory_.run(batch.tokens.token_ids_T.numel(), [&](bool recompute) { sums = run(batch, scale, gradient, recompute); });
  return sums;
}

std::vector<HeldOutSums> Trainer::losses(std::span<const MicroBatch> batches, const std::function<void()>& heartbeat) {
  std::vector<HeldOutSums> all(batches.size());
  send_weights();
  pass_pool().run(static_cast<std::int64_t>(batches.size()), [&](std::int64_t index, int) {
    const auto i = static_cast<std::size_t>(index);
    // With recomputation no graph is kept.
    const TrunkPass pass = pass_of(batches[i], true);
    const at::Tensor hidden_TD = head_rows(pass.hidden_TD());
    const LossSums sums = loss_.losses(batches[i], head_pass(hidden_TD), 1.0, nullptr);
    all[i] = {sums.loss, sums.rewards};
    if (heartbeat) heartbeat();
  });
  return all;
}

std::vector<std::vector<double>> Trainer::sequence_logprobs(std::span<const MicroBatch> batches,
                                                            const std::function<void()>& heartbeat) {
  const std::vector<at::Tensor> logprobs = label_logprobs(batches, false, heartbeat);
  std::vector<std::vector<double>> all(batches.size());
  for (std::size_t i = 0; i < batches.size(); ++i) {
    for (const SequenceSum& sum : sequence_sums(batches[i], logprobs[i])) all[i].push_back(sum.logprob);
  }
  return all;
}

StepResult Trainer::differentiate(std::uint64_t num_micro_batches, std::span<const MicroBatch> own,
                                  at::Tensor& gradient, const std::function<void()>& heartbeat) {
  const IndexRange range = micro_batches_of(num_micro_batches, world_.rank(), world_.size());
  MAGISTER_ASSERT(own.size() == range.size());
  StepResult result;
  result.tokens = step_tokens(loss_, own, world_);
  MAGISTER_CHECK(result.tokens > 0, ExitCode::kInternal,
                 "a step of {} micro-batches has no token to learn from (its loss would be 0 / 0); report this",
                 num_micro_batches);
  const auto tokens = static_cast<double>(result.tokens);
  const double scale = step_scale(loss_, own, result.tokens, world_);
  StagedCopies* const copies = device_.has_gpu_code() ? &copies_ : nullptr;
  GradientTree tree(sums_, num_micro_batches, trained().flat_size(),
                    {options_.fast_sums, options_.divides_optimizer, copies, copies != nullptr && options_.sums_on_gpu,
                     sum_stays() && world_.size() == 1, exchange_.get()});
  std::vector<LossSums> sums(own.size());
  send_weights();
  pass_pool().run(static_cast<std::int64_t>(own.size()), [&](std::int64_t index, int) {
    const auto i = static_cast<std::size_t>(index);
    MicroGradient micro_gradient(trained(), tree, range.begin + i, sums_device(), copies);
    sums[i] = run_within_memory(own[i], scale, micro_gradient);
    micro_gradient.finish();
    if (heartbeat) heartbeat();
  });
  at::Tensor sum = tree.finish();
  const std::vector<LossSums> all = gathered(world_, sums);
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

// A gradient that does not stay on the device is in host memory on every rank.
double Trainer::norm_of(const at::Tensor& gradient) {
  return norm_of_blocks(sharing(), shards_,
                        sum_stays() ? block_squares(gradient, *device_.queue()) : block_squares(gradient, pool_));
}

void Trainer::update(double lr, double scale, const at::Tensor& gradient) {
  if (!gpu_optimizer_) return update_on_host(lr, scale, gradient);
  // A state's copy may still read what is written now. All else that writes weights or moments follows in this stream.
  copy_queue_->hold_default();
  if (sum_stays()) return update_on_device(lr, scale, gradient);
  // A rank changes the host copy only after the others have read it: the sums of a step synchronise the ranks.
  const auto share = [&](std::int64_t bucket) {
    const FlatRange own = shards_.piece(bucket, sharing().rank());
    copies_.to_host(weights_on_device().narrow(0, own.begin, own.size()),
                    weights_on_host().narrow(0, own.begin, own.size()));
    share_bucket(bucket);
  };
  gpu_optimizer_->update_from_host(options_.optimizer, lr, scale, gradient, weights_on_device(), state_, copies_,
                                   sharing().size() > 1 ? share : std::function<void(std::int64_t)>());
}

// A piece is updated while the next one arrives, if the gradient is on the device, and while the weights before it go
// back. With ZeRO-1 a bucket goes back as soon as the other ranks' pieces of it are here.
void Trainer::update_on_host(double lr, double scale, const at::Tensor& gradient) {
  const AdamwUpdate update(trained(), shards_, sharing().rank(), options_.optimizer, lr, scale, weights_on_host(),
                           state_, pool_);
  if (device_.has_gpu_code() && sharing().size() > 1) {
    for (std::int64_t bucket = 0; bucket < shards_.num_buckets(); ++bucket) {
      const std::int64_t begin = shards_.offset(bucket, sharing().rank());
      update.run(begin, gradient.narrow(0, begin, shards_.piece(bucket, sharing().rank()).size()));
      share_bucket(bucket);
    }
    is_sent_ = true;
    return;
  }
  const bool sends = device_.has_gpu_code();
  const auto run = [&](const at::Tensor& piece, std::int64_t begin) {
    update.run(begin, piece);
    if (sends)
      copies_.to_device(weights_on_host().narrow(0, begin, piece.numel()),
                        weights_on_device().narrow(0, begin, piece.numel()));
  };
  const std::int64_t size = gradient.numel(), at_once = sends ? StagedCopies::kPiece : size;
  if (sum_stays()) {
    copies_.each_piece(gradient, run);
  } else {
    for (std::int64_t begin = 0; begin < size; begin += at_once)
      run(gradient.narrow(0, begin, std::min(at_once, size - begin)), begin);
  }
  gather_weights();
  is_sent_ = sends;
}

// With ZeRO-1 a bucket's weights go to the other ranks while the next bucket is updated.
void Trainer::update_on_device(double lr, double scale, const at::Tensor& gradient) {
  const bool is_divided = sharing().size() > 1;
  const auto give = [&](std::int64_t bucket) {
    gather_on_devices(*exchange_, shards_, world_.rank(), bucket, weights_on_device());
  };
  gpu_optimizer_->update(options_.optimizer, lr, scale, gradient, weights_on_device(), state_,
                         is_divided ? give : std::function<void(std::int64_t)>());
  if (is_divided) exchange_->wait();
}

void Trainer::gather_weights(std::optional<std::int64_t> bucket) {
  lora_ ? gather_pieces(sharing(), shards_, adapter_, bucket) : model_.gather(sharing(), host_, shards_, bucket);
}

void Trainer::share_bucket(std::int64_t bucket) {
  gather_weights(bucket);
  const FlatRange range = shards_.bucket_range(bucket);
  copies_.to_device(weights_on_host().narrow(0, range.begin, range.size()),
                    weights_on_device().narrow(0, range.begin, range.size()));
}

}  // namespace magister
