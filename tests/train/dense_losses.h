// The losses of distillation written over whole distributions in f64, for autograd: the oracle of train/head_loss.h. It
// shares no code with the program.
#pragma once

#include <ATen/ATen.h>

#include <cmath>
#include <vector>

#include "magister/train/head_loss.h"

namespace magister::test {

using Loss = DistillOptions::Loss;
using Tail = DistillOptions::Tail;

inline at::Tensor kl(const at::Tensor& p, const at::Tensor& log_p, const at::Tensor& log_q) {
  return at::where(p > 0, p * (log_p - log_q), at::zeros_like(log_q)).sum();
}

// p, q: probabilities of outcomes, 1-D f64.
inline at::Tensor divergence(const at::Tensor& p, const at::Tensor& q, Loss loss, double beta) {
  const at::Tensor safe_p = at::where(p > 0, p, at::ones_like(p));
  if (loss == Loss::kForwardKl || (loss == Loss::kJs && beta == 0)) return kl(p, safe_p.log(), q.log());
  if (loss == Loss::kReverseKl || (loss == Loss::kJs && beta == 1)) return (q * (q.log() - p.log())).sum();
  if (loss == Loss::kTotalVariation) return (p - q).abs().sum() / 2;
  const at::Tensor m = beta * p + (1 - beta) * q;
  return beta * kl(p, safe_p.log(), m.log()) + (1 - beta) * (q * (q.log() - m.log())).sum();
}

// One row: logits [V] f64; the teacher's kept entries (temperature 1 if other entries are left out; other temperatures
// are exact only with all entries).
inline at::Tensor dense_distill(const at::Tensor& logits, const at::Tensor& ids, const at::Tensor& kept_logp,
                                std::int64_t label, const DistillOptions& options) {
  const double T = options.temperature;
  const at::Tensor q = at::softmax(logits / T, 0);
  at::Tensor p = kept_logp.to(at::kDouble).exp(), index = ids.to(at::kLong);
  if (T != 1) {
    p = p.pow(1 / T);
    p = p / p.sum();
  }
  double rest = std::max(0.0, 1.0 - p.sum().item<double>());
  if (options.tail == Tail::kGold) {
    at::Tensor all = at::zeros_like(q).detach();
    all.index_put_({index}, p);
    all[label] += rest;
    index = all.nonzero().squeeze(1);
    p = all.index_select(0, index);
  }
  at::Tensor chosen = q.index_select(0, index);
  if (options.tail == Tail::kRenormalised || options.tail == Tail::kRenormalisedBoth) p = p / p.sum();
  if (options.tail == Tail::kRenormalisedBoth) chosen = chosen / chosen.sum();
  if (options.tail == Tail::kBucket && index.size(0) < q.size(0)) {
    at::Tensor others = at::ones_like(q).detach();
    others.index_fill_(0, index, 0.0);
    chosen = at::cat({chosen, (q * others).sum().view({1})});
    p = at::cat({p, at::full({1}, rest, p.options())});
  }
  return divergence(p, chosen, options.loss, options.beta) * T * T;
}

struct DenseResult {
  double loss = 0;
  at::Tensor hidden_gradient_TD, head_gradient_VD;
};

// The whole of head_loss by autograd over dense logits.
inline DenseResult dense_head_loss(const at::Tensor& hidden_TD, const at::Tensor& head_VD,
                                   const HeadLossTargets& targets, const HeadLossOptions& options, double scale) {
  at::Tensor hidden = hidden_TD.to(at::kDouble).detach(), head = head_VD.to(at::kDouble).detach();
  hidden.requires_grad_(true);
  head.requires_grad_(true);
  at::Tensor logits_TV = at::mm(hidden, head.t()) * options.scaling.multiplier;
  if (options.scaling.softcap > 0) {
    logits_TV = at::tanh(logits_TV / options.scaling.softcap) * options.scaling.softcap;
  }
  at::Tensor total = at::zeros({}, at::kDouble);
  for (std::int64_t t = 0; t < hidden.size(0); ++t) {
    const std::int64_t label = targets.labels_T[t].item<std::int64_t>();
    if (label == -100) continue;
    const double weight = targets.row_weight_T.defined() ? targets.row_weight_T[t].item<double>() : 1.0;
    at::Tensor loss = -at::log_softmax(logits_TV[t], 0)[label] * options.distill.lm_weight;
    const bool valid = targets.teacher_ids_TK.defined() &&
                       (!targets.teacher_valid_T.defined() || targets.teacher_valid_T[t].item<std::int64_t>() != 0);
    if (valid && targets.sampled) {
      const at::Tensor log_q =
          at::log_softmax(logits_TV[t], 0).index_select(0, targets.teacher_ids_TK[t].to(at::kLong));
      loss = loss - (targets.teacher_logprobs_TK[t].to(at::kDouble).exp() * log_q).sum() * options.distill.weight;
      if (targets.teacher_entropy_T.defined())
        loss = loss - targets.teacher_entropy_T[t].item<double>() * options.distill.weight;
    } else if (valid) {
      const at::Tensor used = at::logical_and(targets.teacher_ids_TK[t] >= 0, targets.teacher_logprobs_TK[t] > -1e30);
      loss = loss + options.distill.weight * dense_distill(logits_TV[t], targets.teacher_ids_TK[t].masked_select(used),
                                                           targets.teacher_logprobs_TK[t].masked_select(used), label,
                                                           options.distill);
    }
    total = total + scale * weight * loss;
  }
  if (total.requires_grad()) total.backward();
  const auto gradient = [](const at::Tensor& leaf) {
    return leaf.grad().defined() ? leaf.grad() : at::zeros_like(leaf);
  };
  return {total.item<double>(), gradient(hidden), gradient(head)};
}

}  // namespace magister::test
