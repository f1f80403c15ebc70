// After its blocks a layer adds a vector that each token has for it (Gemma 4), and multiplies by a number.
// PerLayerInputs makes the vectors, once per pass. All functions are local.
// Legend: T packed tokens, N layers, P numbers of a vector, D hidden.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "magister/core/types.h"
#include "magister/model/activation.h"
#include "magister/model/batch.h"
#include "magister/model/cpu/matmul.h"
#include "magister/model/weights.h"
#include "magister/parallel/thread_pool.h"

namespace magister {

// A token's vectors: (norm(projection(embedding) / sqrt(D)) + sqrt(P) * row of its id) / sqrt(2).
struct PerLayerInputs {
  std::int64_t layers = 0, width = 0;  // N, P; 0: the model has none
  Linear table;                        // [rows, N P], plain: this shard's rows, for ids in `ids`
  IndexRange ids;
  std::int64_t num_ids = 0;  // of the whole table; a token with another id takes row 0
  float table_scale = 1;
  Linear projection;  // [N P, D] on shard 0, which adds it to the sum over shards; else undefined
  at::Tensor norm_P;  // f32, there

  bool is_on() const { return width > 0; }
  // Rows [begin, end) of this shard's part of the vectors, [T, N P] f32, from the scaled embeddings; the sum over the
  // shards is the vectors. pool: see Attention.
  void compute(const float* hidden_TD, const PackedBatch& batch, std::int64_t begin, std::int64_t end, float eps,
               float* out_TNP, ThreadPool* pool) const;
  // The same for a whole batch in plain ATen code.
  at::Tensor reference(const at::Tensor& hidden_TD, const PackedBatch& batch, double eps) const;
};

struct LayerTail {
  Linear gate, output;  // [P, D] and [D, P], replicated; undefined: the layer adds no vector
  at::Tensor norm_D;    // f32, of the output
  float scalar = 1;     // factor of the stream, last
  Activation activation = Activation::kSilu;

  bool adds() const { return norm_D.defined(); }
  bool is_on() const { return adds() || scalar != 1; }
  // For `rows` rows: returns norm(output(act(gate(input)) * vector)), [rows, D] in scratch; arguments as in run().
  float* addend(const float* input_RD, const float* vector_RP, std::int64_t stride, std::int64_t rows, std::int64_t D,
                float eps, float* scratch, ThreadPool* pool) const;
  // For `rows` rows: hidden += norm(output(act(gate(hidden)) * vector)), then times scalar. vector_RP has a row every
  // `stride` numbers. scratch: rows * (3 P + D) floats.
  void run(float* hidden_RD, const float* vector_RP, std::int64_t stride, std::int64_t rows, std::int64_t D, float eps,
           float* scratch, ThreadPool* pool) const;
  // Returns what run() adds to the stream, before the factor, in plain ATen code; vector_TP: [T, P].
  at::Tensor reference(const at::Tensor& hidden_TD, const at::Tensor& vector_TP, double eps) const;
};

}  // namespace magister
