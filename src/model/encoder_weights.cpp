// Reads the tensors of an encoder in the order in which it uses them.
#include "model/encoder_weights.h"

#include <ATen/ATen.h>

#include <string>
#include <utility>

namespace magister {

at::Tensor encoder_norm(const at::Tensor& x_TD, const EncoderWeights::Norm& norm, const ModelConfig& config) {
  return at::layer_norm(x_TD, {x_TD.size(1)}, norm.weight_D, norm.bias_D, config.rms_norm_eps);
}

EncoderWeights load_encoder_weights(WeightSource& source, const ModelDescription& description,
                                    const std::function<at::Tensor(const at::Tensor&)>& place,
                                    const std::function<Linear(Linear)>& finish) {
  EncoderWeights out;
  out.config = description.config;
  const TensorNames& names = description.names;
  const EncoderConfig& encoder = *out.config.encoder;
  const std::int64_t D = out.config.hidden_size, labels = out.config.head_outputs();
  const auto placed = [&](const at::Tensor& tensor) { return tensor.defined() ? place(tensor) : tensor; };
  const auto norm = [&](const std::string& weight, const std::string& bias) {
    return EncoderWeights::Norm{placed(source.load_whole(weight, {D})), placed(source.load_whole(bias, {D}))};
  };
  out.words_VD = placed(source.load_embeddings());
  out.positions_PD = placed(source.load_positions());
  out.types_XD = placed(source.load_whole(names.embed_token_types, {encoder.token_types, D}));
  out.embed_norm = norm(names.embed_norm, names.embed_norm_bias);
  out.relative_ND = placed(source.load_whole(names.relative, {2 * encoder.relative_span, D}));
  if (encoder.relative_norm)
    out.relative_ND = encoder_norm(out.relative_ND, norm(names.relative_norm, names.relative_norm_bias), out.config);
  for (std::int64_t i = 0; i < out.config.num_hidden_layers; ++i) {
    const TensorNames::Layer& layer = names.layers[static_cast<std::size_t>(i)];
    EncoderWeights::Layer& to = out.layers.emplace_back();
    to.qkv = finish(source.load_qkv_proj(i));
    to.output = finish(source.load_o_proj(i));
    to.attention_norm = norm(layer.attention_output_norm, layer.attention_output_norm_bias);
    to.up = finish(source.load_gate_up_proj(i));
    to.down = finish(source.load_down_proj(i));
    to.mlp_norm = norm(layer.mlp_output_norm, layer.mlp_output_norm_bias);
  }
  out.pooler = finish({source.load_whole(names.pooler, {D, D}), source.load_whole(names.pooler_bias, {D})});
  out.head.projection =
      finish({source.load_whole(names.lm_head, {labels, D}), source.load_whole(names.lm_head_bias, {labels})});
  out.head.vocab = {0, static_cast<std::uint64_t>(labels)};
  out.head.vocab_size = labels;
  source.verify_all_used();
  out.num_bytes = source.loaded_bytes();
  return out;
}

at::Tensor embedding_sum(const EncoderWeights& weights, const at::Tensor& ids_T, const at::Tensor& positions_T) {
  at::Tensor sum_TD = weights.words_VD.index_select(0, ids_T);
  if (weights.types_XD.defined()) sum_TD += weights.types_XD[0];
  if (weights.positions_PD.defined()) sum_TD += weights.positions_PD.index_select(0, positions_T);
  return sum_TD;
}

}  // namespace magister
