// AltUp and Laurel on one shard: a residual stream of several vectors, and a block of low rank that is added to
// attention's output. All weights are replicated, and all functions are local.
// Source: transformers Gemma3nTextAltUp, Gemma3nTextLaurelBlock and Gemma3nTextModel.
// Legend: R rows (tokens) of a tile, T all, A vectors of a token's stream, D hidden, r Laurel's rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <numbers>
#include <vector>

#include "magister/model/cpu/matmul.h"
#include "magister/model/weights.h"
#include "magister/parallel/thread_pool.h"

namespace magister {

// `pool` in this file: see Attention. `scratch`: LayerBuffers::scratch_of() of the calling thread.
struct AltUp {
  std::int64_t inputs = 0, active = 0;  // A; 0: the stream is one vector
  Linear router;                        // [A, D] f32
  at::Tensor router_norm_D;             // f32, of the router's input, divided by D
  // f32: [A A, A], row (o, i) gives the part of vector i in the prediction of vector o; [A, A].
  at::Tensor prediction_AAA, correction_AA;
  at::Tensor scale_D;  // f32; undefined: the model does not use it

  bool is_on() const { return inputs > 0; }
  // streams_RAD becomes its prediction; the active vector is also written to hidden_RD.
  void predict(float* streams_RAD, float* hidden_RD, std::int64_t rows, std::int64_t D, float eps, float* scratch,
               ThreadPool* pool) const;
  // Corrects the predictions by what the blocks have made of the active vector, hidden_RD. hidden_RD becomes the
  // corrected active vector times scale_D.
  void correct(float* hidden_RD, float* streams_RAD, std::int64_t rows, std::int64_t D, float eps, float* scratch,
               ThreadPool* pool) const;
  // The same for a whole batch in plain ATen code: [T, A, D] -> [T, A, D]; activated_TD is the blocks' output.
  at::Tensor plain_predict(const at::Tensor& streams_TAD, double eps) const;
  at::Tensor plain_correct(const at::Tensor& predicted_TAD, const at::Tensor& activated_TD, double eps) const;
  at::Tensor plain_scaled(const at::Tensor& active_TD) const {
    return scale_D.defined() ? active_TD * scale_D : active_TD;
  }

 private:
  // tanh(router(norm(x))) of each row, [R, A].
  std::vector<float> modalities(const float* x_RD, std::int64_t rows, std::int64_t D, float eps, float* scratch,
                                ThreadPool* pool) const;
  at::Tensor plain_modalities(const at::Tensor& x_TD, double eps) const;
};

// Products that make a stream's vectors from the embedding, and that join them again.
struct AltUpEnds {
  std::vector<Linear> projections, unembeddings;  // A - 1 of [D, D] each
  std::int64_t inputs() const { return static_cast<std::int64_t>(projections.size()) + 1; }
  // The first vector is hidden_RD, the others are products of it with its mean square.
  void spread(const float* hidden_RD, float* streams_RAD, std::int64_t rows, std::int64_t D, ThreadPool* pool) const;
  // hidden_RD becomes the mean of the first vector and of the others' products with its mean square.
  void join(const float* streams_RAD, float* hidden_RD, std::int64_t rows, std::int64_t D, float* scratch,
            ThreadPool* pool) const;
  at::Tensor plain_spread(const at::Tensor& hidden_TD) const;  // -> [T, A, D]
  at::Tensor plain_join(const at::Tensor& streams_TAD) const;  // -> [T, D]
};

struct Laurel {
  static constexpr float kFactor = static_cast<float>(1.0 / std::numbers::sqrt2);  // of the stream after attention
  Linear left, right;  // [r, D] and [D, r]; undefined: the layer has none
  at::Tensor norm_D;   // f32
  bool is_on() const { return norm_D.defined(); }
  // hidden += x + norm(right(left(x))), where x is attention's normed input.
  void run(const BlockNorms& attention, float* hidden_RD, std::int64_t rows, std::int64_t D, float eps, float* scratch,
           ThreadPool* pool) const;
  at::Tensor reference(const BlockNorms& attention, const at::Tensor& hidden_TD, double eps) const;  // what run() adds
};

}  // namespace magister
