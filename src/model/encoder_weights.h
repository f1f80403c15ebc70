// EncoderWeights: a whole encoder in f32, on a CPU or a GPU.
// Legend: V vocabulary, P rows of positions, X token types, N relative position vectors, D hidden.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "magister/model/transformer.h"
#include "magister/model/weights.h"

namespace magister {

struct EncoderWeights {
  struct Norm {
    at::Tensor weight_D, bias_D;
  };
  struct Layer {
    Linear qkv, output, up, down;
    Norm attention_norm, mlp_norm;
  };
  ModelConfig config;
  at::Tensor words_VD, positions_PD, types_XD, relative_ND;  // f32; undefined: none
  Norm embed_norm;
  std::vector<Layer> layers;
  Linear pooler;
  LmHead head;
  std::uint64_t num_bytes = 0;
};

// Reads the whole model. place: puts a table or a vector where the model computes; finish: does so with a product, and
// packs it where the device needs that. Local (reads files only).
EncoderWeights load_encoder_weights(WeightSource& source, const ModelDescription& description,
                                    const std::function<at::Tensor(const at::Tensor&)>& place,
                                    const std::function<Linear(Linear)>& finish);

// The sum of a token's vectors before the first norm, [T, D]. All tensors are on the weights' device. positions_T: rows
// of positions_PD.
at::Tensor embedding_sum(const EncoderWeights& weights, const at::Tensor& ids_T, const at::Tensor& positions_T);

at::Tensor encoder_norm(const at::Tensor& x_TD, const EncoderWeights::Norm& norm, const ModelConfig& config);

}  // namespace magister
