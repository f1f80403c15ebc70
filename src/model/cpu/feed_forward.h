// FeedForward: the second block of a decoder layer on one shard, an MLP with a gate, down(act(gate(x)) * up(x)), or
// without one, down(act(up(x))), according to LayerShape::gated_mlp.
// Legend: T packed tokens, D hidden, F MLP columns of this shard. Local; the model sums partial outputs over the
// shards.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

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

  // With LayerShape::gate_cutoff, run() takes mean and deviation of this shard's gates alone. Several shards use these
  // two instead, with a sum over the shards between them. gate_up_RF2: [rows, 2 F] of the rows' gates and ups;
  // sums_R2: [rows, 2], for each row the sums of its gates and of their squares, first this shard's, then all.
  void project(const float* hidden_TD, std::int64_t begin, std::int64_t end, LayerBuffers& buffers, int thread_index,
               float* gate_up_RF2, double* sums_R2, ThreadPool* pool = nullptr) const;
  void finish(float* gate_up_RF2, const double* sums_R2, std::int64_t begin, std::int64_t end, LayerBuffers& buffers,
              int thread_index, float* out_TD, ThreadPool* pool = nullptr) const;

  // See Attention::reference(), also for `sum`.
  at::Tensor reference(const at::Tensor& hidden_TD, const std::function<void(at::Tensor&)>& sum = {}) const;

  bool thins_gates() const { return shape_.gate_cutoff.has_value(); }
  std::int64_t columns() const { return shape_.mlp; }

  const FeedForwardWeights& weights() const { return weights_; }

 private:
  void thin(float* gate_up_RF2, const double* sums_R2, std::int64_t rows, std::int64_t columns) const;

  LayerShape shape_;
  FeedForwardWeights weights_;
};

}  // namespace magister
