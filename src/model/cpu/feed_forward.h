// FeedForward: the second block of a decoder layer on one shard, an MLP with a gate, down(act(gate(x)) * up(x)), or
// without one, down(act(up(x))), according to LayerShape::gated_mlp.
// Legend: T packed tokens, D hidden, F MLP columns of this shard. Local; the model sums partial outputs over the
// shards.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "magister/model/cpu/matmul.h"
#include "magister/model/weights.h"
#include "magister/parallel/thread_pool.h"
#include "model/cpu/layer_buffers.h"

namespace magister {

struct FeedForwardWeights {
  BlockNorms norms;
  Linear gate_up_proj;  // [2F, D], gate rows first, sharded; without a gate [F, D]
  Linear down_proj;     // [D, F]; the product is partial
  Xielu xielu{};        // instead of the activation, in an MLP without a gate
};

class FeedForward {
 public:
  FeedForward(LayerShape shape, FeedForwardWeights weights) : shape_(std::move(shape)), weights_(std::move(weights)) {}

  // Rows [begin, end): out (+)= mlp(norm(hidden)). accumulate: out is the residual stream. pool: see Attention.
  void run(const float* hidden_TD, std::int64_t begin, std::int64_t end, LayerBuffers& buffers, int thread_index,
           float* out_TD, bool accumulate, ThreadPool* pool = nullptr) const;

  // See Attention::reference().
  at::Tensor reference(const at::Tensor& hidden_TD) const;

  const FeedForwardWeights& weights() const { return weights_; }

 private:
  LayerShape shape_;
  FeedForwardWeights weights_;
};

}  // namespace magister
