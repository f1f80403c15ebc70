// Fields that encoders have in common. Source: transformers' configuration classes of BERT, DistilBERT and DeBERTa-v2.
#include "model/families/encoder_fields.h"

#include "magister/core/error.h"

namespace magister {

void read_encoder(const HfConfig& source, ModelConfig& config) {
  config.norm_kind = NormKind::kLayer;
  config.norm_bias = config.qkv_bias = config.o_bias = config.mlp_bias = true;
  config.norm_placement = NormPlacement::kOutput;
  config.gated_mlp = false;
  if (!source.has("hidden_act")) config.activation = Activation::kGelu;
  config.layer_has_rope.assign(static_cast<std::size_t>(config.num_hidden_layers), false);
  config.rope = {};
  config.rotary_dim = 0;
  const std::int64_t H = config.num_attention_heads;
  config.num_key_value_heads = H;
  MAGISTER_CHECK(config.hidden_size % H == 0, ExitCode::kData,
                 "{}: the hidden size is {} and the heads are {} (heads are equal parts of it); fetch the config again",
                 printable(source.path()), config.hidden_size, H);
  config.head_dim = config.hidden_size / H;
}

void need_text(const HfConfig& source, const char* key, const char* computed) {
  const std::string value = source.text_or(key, computed);
  MAGISTER_CHECK(value == computed, ExitCode::kData,
                 "{}: {} is \"{}\" (for encoders of this family only {} is supported, and results would be wrong); "
                 "use another model",
                 printable(source.path()), key, printable(value), computed);
}

}  // namespace magister
