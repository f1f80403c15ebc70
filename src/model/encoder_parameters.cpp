// Rows in the order in which an encoder uses them, with BERT's names. The file of each family has the names that
// differ. Source: transformers' BERT.
#include "model/encoder_parameters.h"

namespace magister {

std::vector<LayerParameter> encoder_layer_parameters(const ModelConfig& config) {
  using Layer = TensorNames::Layer;
  using enum Division;
  const std::int64_t D = config.hidden_size, F = config.intermediate_size;
  constexpr FusedProduct kQkv = FusedProduct::kQkv;
  return {{&Layer::q_proj, "attention.self.query.weight", "", {D, D}, kHeadRows, kQkv},
          {&Layer::k_proj, "attention.self.key.weight", "", {D, D}, kKvHeadRows, kQkv},
          {&Layer::v_proj, "attention.self.value.weight", "", {D, D}, kKvHeadRows, kQkv},
          {&Layer::q_bias, "attention.self.query.bias", "", {D}, kHeadRows},
          {&Layer::k_bias, "attention.self.key.bias", "", {D}, kKvHeadRows},
          {&Layer::v_bias, "attention.self.value.bias", "", {D}, kKvHeadRows},
          {&Layer::o_proj, "attention.output.dense.weight", "", {D, D}, kHeadColumns, FusedProduct::kOutput},
          {&Layer::o_bias, "attention.output.dense.bias", "", {D}, kFirstShard},
          {&Layer::attention_output_norm, "attention.output.LayerNorm.weight", "", {D}},
          {&Layer::attention_output_norm_bias, "attention.output.LayerNorm.bias", "", {D}},
          {&Layer::up_proj, "intermediate.dense.weight", "", {F, D}, kMlpRows, FusedProduct::kGateUp},
          {&Layer::up_bias, "intermediate.dense.bias", "", {F}, kMlpRows},
          {&Layer::down_proj, "output.dense.weight", "", {D, F}, kMlpColumns, FusedProduct::kDown},
          {&Layer::down_bias, "output.dense.bias", "", {D}, kFirstShard},
          {&Layer::mlp_output_norm, "output.LayerNorm.weight", "", {D}},
          {&Layer::mlp_output_norm_bias, "output.LayerNorm.bias", "", {D}}};
}

std::vector<ModelParameter> encoder_model_parameters(const ModelConfig& config) {
  const std::int64_t D = config.hidden_size, N = config.head_outputs();
  const EncoderConfig& encoder = *config.encoder;
  using Names = TensorNames;
  std::vector<ModelParameter> all = {
      {&Names::embed_tokens, "embeddings.word_embeddings.weight", "", {config.vocab_size, D}}};
  const auto add = [&](bool present, ModelParameter row) {
    if (present) all.push_back(std::move(row));
  };
  add(config.learned_positions,
      {&Names::embed_positions, "embeddings.position_embeddings.weight", "", {config.position_rows(), D}});
  add(encoder.token_types > 0,
      {&Names::embed_token_types, "embeddings.token_type_embeddings.weight", "", {encoder.token_types, D}});
  add(true, {&Names::embed_norm, "embeddings.LayerNorm.weight", "", {D}});
  add(true, {&Names::embed_norm_bias, "embeddings.LayerNorm.bias", "", {D}});
  const std::int64_t distances = 2 * encoder.relative_span;
  add(distances > 0, {&Names::relative, "encoder.rel_embeddings.weight", "", {distances, D}});
  add(encoder.relative_norm, {&Names::relative_norm, "encoder.LayerNorm.weight", "", {D}});
  add(encoder.relative_norm, {&Names::relative_norm_bias, "encoder.LayerNorm.bias", "", {D}});
  add(true, {&Names::pooler, "pooler.dense.weight", "", {D, D}});
  add(true, {&Names::pooler_bias, "pooler.dense.bias", "", {D}});
  add(true, {&Names::lm_head, "classifier.weight", "", {N, D}});
  add(true, {&Names::lm_head_bias, "classifier.bias", "", {N}});
  return all;
}

}  // namespace magister
