// One decoder layer on one shard: hidden += attention(hidden), then hidden += mlp(hidden), each with its norms.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <variant>

#include "model/cpu/altup.h"
#include "model/cpu/attention.h"
#include "model/cpu/experts.h"
#include "model/cpu/feed_forward.h"
#include "model/cpu/per_layer_inputs.h"

namespace magister {

// A dense MLP beside a layer's experts. Its output and theirs are normed, then added.
struct DenseBeside {
  FeedForward mlp;
  at::Tensor output_D, experts_output_D;  // f32, weights of the two norms
};

struct DecoderLayer {
  Attention attention;
  std::variant<FeedForward, Experts> mlp;
  std::optional<DenseBeside> beside{};  // only where `mlp` has experts
  LayerTail tail{};
  Laurel laurel{};
  AltUp altup{};
  const LayerShape& shape() const { return attention.shape(); }
  // nullptr: the layer has the other kind of MLP.
  const FeedForward* feed_forward() const { return std::get_if<FeedForward>(&mlp); }
  const Experts* experts() const { return std::get_if<Experts>(&mlp); }
  const BlockNorms& mlp_norms() const {
    return experts() ? experts()->weights().norms : feed_forward()->weights().norms;
  }
  // See Attention::reference().
  at::Tensor mlp_reference(const at::Tensor& hidden_TD, const std::function<void(at::Tensor&)>& sum = {}) const {
    return experts() ? experts()->reference(hidden_TD) : feed_forward()->reference(hidden_TD, sum);
  }
};

// A product in the weight's dtype, with its bias, in plain ATen code.
at::Tensor plain_product(const at::Tensor& x_TK, const Linear& linear);
// The input of a block in plain ATen code: normed, or hidden_TD itself if the block has no input norm.
at::Tensor plain_input(const BlockNorms& norms, const at::Tensor& hidden_TD, double eps);
// The output norm of a block in plain ATen code; out_TD itself if the block has none.
at::Tensor reference_block_output(const BlockNorms& norms, const at::Tensor& out_TD, double eps);

// cap * tanh(x / cap), or x itself if cap is 0.
at::Tensor soft_capped(const at::Tensor& numbers, double cap);

}  // namespace magister
