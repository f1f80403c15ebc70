// One decoder layer of a transformer on one shard: hidden += attention(hidden), then hidden += mlp(hidden), each with its norms.
#pragma once

#include <ATen/core/Tensor.h>

#include "model/cpu/attention.h"
#include "model/cpu/feed_forward.h"

namespace magister {

struct DecoderLayer {
  Attention attention;
  FeedForward mlp;
  const LayerShape& shape() const { return attention.shape(); }
};

// The norm on a block's output, by plain ATen code; out_TD itself where the block has none.
at::Tensor reference_block_output(const BlockNorms& norms, const at::Tensor& out_TD, double eps);

// cap * tanh(x / cap), or x itself where cap is 0.
at::Tensor soft_capped(const at::Tensor& numbers, double cap);

}  // namespace magister
