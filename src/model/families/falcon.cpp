// Falcon (7B, 40B, 180B, Falcon 2): an MLP without a gate beside attention, by one layer norm or by two; one tensor
// holds the query heads of a KV head, its keys and its values in turn. Models with ALiBi (Falcon-RW) are refused.
// Source: transformers FalconConfig, FalconDecoderLayer and FalconAttention.
#include "magister/core/error.h"
#include "model/families/family.h"
#include "model/families/needed_value.h"

namespace magister {
namespace falcon {

using Rename = std::pair<const char*, const char*>;
constexpr Rename kKeys[] = {
    {"num_key_value_heads", "num_kv_heads"}, {"intermediate_size", "ffn_hidden_size"}, {"hidden_act", "activation"}};
constexpr const char* kComputes[] = {"parallel_attn", "gelu by the normal distribution"};
// The last four rows are for models with a norm of its own for the MLP beside attention.
constexpr Rename kRenames[] = {{"model.embed_tokens.weight", "transformer.word_embeddings.weight"},
                               {"model.norm.weight", "transformer.ln_f.weight"},
                               {"model.norm.bias", "transformer.ln_f.bias"},
                               {"self_attn.qkv_proj.weight", "self_attention.query_key_value.weight"},
                               {"self_attn.qkv_proj.bias", "self_attention.query_key_value.bias"},
                               {"self_attn.o_proj.weight", "self_attention.dense.weight"},
                               {"self_attn.o_proj.bias", "self_attention.dense.bias"},
                               {"mlp.up_proj.weight", "mlp.dense_h_to_4h.weight"},
                               {"mlp.up_proj.bias", "mlp.dense_h_to_4h.bias"},
                               {"mlp.down_proj.weight", "mlp.dense_4h_to_h.weight"},
                               {"mlp.down_proj.bias", "mlp.dense_4h_to_h.bias"},
                               {"input_layernorm.weight", "ln_attn.weight"},
                               {"input_layernorm.bias", "ln_attn.bias"},
                               {"post_attention_layernorm.weight", "ln_mlp.weight"},
                               {"post_attention_layernorm.bias", "ln_mlp.bias"}};

std::span<const Rename> renames(const ModelConfig& config) {
  const std::span<const Rename> all = kRenames;
  return config.parallel_norms ? all : all.first(all.size() - 4);
}

void read_hf(const HfConfig& source, ModelConfig& config) {
  const bool grouped = source.boolean_or("new_decoder_architecture", false);
  const bool parallel = source.boolean_or("parallel_attn", true);
  const std::int64_t norms = source.integer_or("num_ln_in_parallel_attn", grouped ? 2 : 1, 1, 2);
  MAGISTER_CHECK(grouped ? parallel : norms == 1, ExitCode::kData,
                 "{}: new_decoder_architecture is {}, parallel_attn {} and num_ln_in_parallel_attn {} (transformers "
                 "cannot compute such layers); fetch the config again",
                 printable(source.path()), grouped, parallel, norms);
  if (!grouped) config.num_key_value_heads = source.boolean_or("multi_query", true) ? 1 : config.num_attention_heads;
  config.norm_kind = NormKind::kLayer;
  config.norm_bias = true;
  config.parallel_residual = parallel;
  config.parallel_norms = norms == 2;
  config.gated_mlp = false;
  config.fused_qkv_proj = config.fused_qkv_by_head = true;
  config.rms_norm_eps = source.number_or("layer_norm_epsilon", 1e-5, 1e-12, 1.0);
  config.qkv_bias = config.o_bias = config.mlp_bias = source.boolean_or("bias", false);
  config.tie_word_embeddings = source.boolean_or("tie_word_embeddings", true);
  if (!source.has("hidden_act")) config.activation = Activation::kGelu;
  need_even_heads(source, config);
  if (!source.boolean_or("alibi", false)) return;
  config.alibi_max = 8.0;
  config.alibi_in_bf16 = true;
  config.rope = {};
  config.rotary_dim = 0;
  config.layer_has_rope.assign(static_cast<std::size_t>(config.num_hidden_layers), false);
}

}  // namespace falcon

extern const Family kFalconFamily;
const Family kFalconFamily{.name = "falcon",
                           .model_type = "falcon",
                           .architecture = "FalconForCausalLM",
                           .read_hf = falcon::read_hf,
                           .computes = falcon::kComputes,
                           .hf_renames_of = falcon::renames,
                           .hf_keys = falcon::kKeys,
                           .default_mlp_widths = 4,
                           .hf_layers = "transformer.h."};

}  // namespace magister
