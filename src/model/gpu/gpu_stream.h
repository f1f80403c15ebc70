// Weights on a GPU for the parts around a layer's blocks: AltUp, Laurel and vectors by layer. All are replicated except
// the table of vectors, whose rows the shards share. A tensor that the model lacks is undefined. gpu_stream.cpp has
// their use.
// Legend: A vectors of a stream, D hidden, N layers, P numbers of a vector by layer, v rows of this shard.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "magister/core/types.h"
#include "magister/model/model_config.h"
#include "magister/model/weights.h"
#include "model/gpu/gpu_linear.h"

namespace magister::gpu {

using MakeLinear = std::function<GpuLinear(const Linear& linear)>;  // puts a layer's product on the device

struct GpuStreamLayer {
  GpuLinear per_layer_gate, per_layer_output;  // [P, D] and [D, P]
  at::Tensor per_layer_norm_D;                 // f32, as all below
  float factor = 1.0f;                         // of the residual stream, after the vector has joined it
  GpuLinear laurel_left, laurel_right;
  at::Tensor laurel_norm_D;
  // As in AltUp (model/cpu/altup.h).
  at::Tensor router_AD, router_norm_D, prediction_AAA, correction_AA, scale_D;

  bool has_vectors() const { return per_layer_norm_D.defined(); }
  bool has_laurel() const { return laurel_norm_D.defined(); }
  bool has_altup() const { return router_AD.defined(); }
  std::vector<const GpuLinear*> products() const;
  std::uint64_t num_bytes() const;  // without the products

  static GpuStreamLayer load(WeightSource& source, std::int64_t layer, const ModelConfig& config, at::Device device,
                             const MakeLinear& make);
  // made: f32 ones of a size; product: random, [outputs, inputs].
  static GpuStreamLayer random(const ModelConfig& config, const std::function<at::Tensor(at::IntArrayRef)>& made,
                               const std::function<GpuLinear(std::int64_t, std::int64_t)>& product);
};

struct GpuStreamEnds {
  at::Tensor table_vX;  // [v, N P] in the activations' dtype
  IndexRange ids;
  float table_scale = 1;
  GpuLinear projection;                 // [N P, D] on shard 0; else undefined
  at::Tensor norm_P;                    // f32, there
  GpuLinear spread;                     // [(A - 1) D, D]
  std::vector<GpuLinear> unembeddings;  // A - 1 of [D, D]

  bool has_vectors() const { return table_vX.defined(); }
  std::vector<GpuLinear*> products();
  std::uint64_t num_bytes() const;

  static GpuStreamEnds load(WeightSource& source, const ModelConfig& config, IndexRange vocab, at::ScalarType dtype,
                            at::Device device);
  static GpuStreamEnds random(const ModelConfig& config, IndexRange vocab,
                              const std::function<at::Tensor(at::IntArrayRef)>& made,
                              const std::function<GpuLinear(std::int64_t, std::int64_t)>& product);
};

// Numbers per token of a pass: f32 that it keeps, and the most of the activations' dtype at the ends of the stream.
struct GpuStreamNumbers {
  std::uint64_t kept = 0, at_ends = 0;
};
GpuStreamNumbers gpu_stream_numbers(const ModelConfig& config);

}  // namespace magister::gpu
