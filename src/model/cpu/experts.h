// Experts: the second block of a sparse decoder layer on one shard. A router chooses a few of many gated MLPs for each
// token, and their outputs are added up, weighted by the router's probabilities. Source: Shazeer et al., arXiv
// 1701.06538; transformers' Mixtral, Qwen3-MoE.
// Legend: T packed tokens, D hidden, F columns of an expert on this shard, X experts, k experts per token.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "magister/model/routes.h"
#include "model/cpu/feed_forward.h"

namespace magister {

struct ExpertsWeights {
  BlockNorms norms;
  // [X, D] f32, replicated: every shard makes the same choice from the same rows. One more row is that of the shared
  // experts' weight.
  Linear router;
  std::vector<FeedForward> experts;  // shared ones last; each sliced like an MLP and without norms, products partial
  at::Tensor choice_bias_X{};        // f32, or undefined
  at::Tensor scales_X{};             // f32, factors of the weights of the routes; or undefined
  BlockNorms router_norms{};         // of the router's input, where it is not that of the experts
};

class Experts {
 public:
  Experts(LayerShape shape, ExpertsWeights weights) : shape_(std::move(shape)), weights_(std::move(weights)) {}

  // out (+)= experts(norm(hidden)) for whole batches. Tokens are sorted by expert, and each expert multiplies all its
  // tokens at once. The sum of a token runs over its experts in ascending order, so its bits depend only on its row.
  // accumulate: out is the residual stream, which is also hidden. Only outside ThreadPool::run.
  void run(const float* hidden_TD, std::int64_t num_tokens, LayerBuffers& buffers, float* out_TD, bool accumulate,
           ThreadPool& pool) const;

  // The router's logits for a whole batch in plain ATen code: [T, L], see RouterRule.
  at::Tensor reference_logits(const at::Tensor& hidden_TD) const;
  // See Attention::reference(); with these routes, or with the router's own.
  at::Tensor reference(const at::Tensor& hidden_TD, const Routes& routes) const;
  at::Tensor reference(const at::Tensor& hidden_TD) const;

  const ExpertsWeights& weights() const { return weights_; }
  // The weights of routes times the factors of their experts.
  at::Tensor scaled(const at::Tensor& weights_Tk, const at::Tensor& experts_Tk) const;

 private:
  const BlockNorms& router_norms() const {
    return weights_.router_norms.input_D.defined() ? weights_.router_norms : weights_.norms;
  }
  void route(const float* hidden_TD, std::int64_t num_tokens, LayerBuffers& buffers, ThreadPool& pool) const;

  LayerShape shape_;
  ExpertsWeights weights_;
};

}  // namespace magister
