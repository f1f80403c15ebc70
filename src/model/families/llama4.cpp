// Llama 4's texts: layers with a rotary embedding see the keys of their own chunk of positions and divide each head of
// q and k by its root mean square; those without one see all keys, and their queries grow with the position. Every
// layer, or one of several, has experts: a sigmoid weighs the input of each chosen one, and a shared expert is added.
// Source: transformers Llama4TextConfig, Llama4TextAttention, Llama4TextMoe and Llama4TextExperts.
#include <algorithm>

#include "magister/core/error.h"
#include "model/families/expert_fields.h"

namespace magister {
namespace llama4 {

constexpr std::int64_t kMostColumns = 1 << 22;
constexpr const char* kComputes[] = {
    "num_local_experts",       "num_experts", "no_rope_layers",       "no_rope_layer_interval",
    "attn_temperature_tuning", "attn_scale",  "attention_chunk_size", "use_qk_norm"};
constexpr std::pair<const char*, std::int64_t> kDefaults[] = {
    {"num_key_value_heads", 8}, {"head_dim", 128}, {"intermediate_size", 8192}, {"intermediate_size_mlp", 16384}};
constexpr std::pair<const char*, const char*> kRenames[] = {
    {"mlp.gate_proj.weight", "feed_forward.gate_proj.weight"},
    {"mlp.up_proj.weight", "feed_forward.up_proj.weight"},
    {"mlp.down_proj.weight", "feed_forward.down_proj.weight"},
    {"mlp.gate.weight", "feed_forward.router.weight"},
    {"mlp.experts.gate_up_proj", "feed_forward.experts.gate_up_proj"},
    {"mlp.experts.down_proj", "feed_forward.experts.down_proj"},
    {"mlp.shared_experts.gate_proj.weight", "feed_forward.shared_expert.gate_proj.weight"},
    {"mlp.shared_experts.up_proj.weight", "feed_forward.shared_expert.up_proj.weight"},
    {"mlp.shared_experts.down_proj.weight", "feed_forward.shared_expert.down_proj.weight"}};

void read_attention(const HfConfig& source, ModelConfig& config) {
  const std::int64_t L = config.num_hidden_layers;
  config.layer_has_rope = source.flags("no_rope_layers");  // 1 for a layer with a rotary embedding
  if (config.layer_has_rope.empty())
    config.layer_has_rope = all_but_every(source.integer_or("no_rope_layer_interval", 4, 1, 1 << 12), L);
  // The list may be longer than the model.
  if (static_cast<std::int64_t>(config.layer_has_rope.size()) > L)
    config.layer_has_rope.resize(static_cast<std::size_t>(L));
  config.layer_is_sliding = config.layer_has_rope;
  if (source.has("layer_types")) config.layer_is_sliding.clear();
  for (const std::string& type : source.texts("layer_types")) {
    MAGISTER_CHECK(type == "full_attention" || type == "chunked_attention", ExitCode::kData,
                   "{}: layer_types has \"{}\" (known: full_attention, chunked_attention); use another model",
                   printable(source.path()), printable(type));
    config.layer_is_sliding.push_back(type == "chunked_attention");
  }
  config.chunked_windows = std::ranges::find(config.layer_is_sliding, true) != config.layer_is_sliding.end();
  MAGISTER_CHECK(!config.chunked_windows || !source.is_null("attention_chunk_size"), ExitCode::kData,
                 "{}: attention_chunk_size is null (layers with chunked_attention need a size); fetch the config again",
                 printable(source.path()));
  if (config.chunked_windows) {
    config.sliding_window = source.integer_or("attention_chunk_size", 8192, 1, INT32_MAX);
  } else {
    config.layer_is_sliding.clear();
  }
  config.qk_l2_norm = source.boolean_or("use_qk_norm", true);
  config.qkv_bias = config.o_bias = source.boolean_or("attention_bias", false);
  if (!source.boolean_or("attn_temperature_tuning", true)) return;
  config.query_scale_beta = source.number_or("attn_scale", 0.1, 0.0, 1e3);
  config.query_scale_positions = source.integer_or("floor_scale", 8192, 1, INT32_MAX);
  config.query_scale_shift = 1;
  config.query_scale_without_rope = true;
}

void read_hf(const HfConfig& source, ModelConfig& config) {
  const std::int64_t L = config.num_hidden_layers;
  if (!source.has("rms_norm_eps")) config.rms_norm_eps = 1e-5;
  read_attention(source, config);
  read_experts(source, config, "intermediate_size", 16, 1);
  read_shared_experts(config, config.moe_intermediate_size);
  config.router.scores = RouterConfig::Scores::kSigmoid;
  config.router.weighs_inputs = true;
  config.fused_experts = config.fused_experts_in_halves = true;
  config.layer_is_sparse.assign(static_cast<std::size_t>(L), false);
  if (source.has("moe_layers")) {
    for (const std::int64_t layer : source.integers("moe_layers", 0, L - 1))
      config.layer_is_sparse[static_cast<std::size_t>(layer)] = true;
  } else {
    const std::int64_t step = source.integer_or("interleave_moe_layer_step", 1, 1, 1 << 12);
    for (std::int64_t i = step - 1; i < L; i += step) config.layer_is_sparse[static_cast<std::size_t>(i)] = true;
  }
  // Without a dense layer nothing has the dense layers' columns.
  const bool any_dense = std::ranges::find(config.layer_is_sparse, false) != config.layer_is_sparse.end();
  if (any_dense) config.intermediate_size = source.integer("intermediate_size_mlp", 1, kMostColumns);
  if (source.number_or("router_jitter_noise", 0.0, 0.0, 1.0) > 0) config.untrained_key = "router_jitter_noise";
}

}  // namespace llama4

extern const Family kLlama4Family;
const Family kLlama4Family{.name = "llama4",
                           .model_type = "llama4_text",
                           .architecture = "Llama4ForCausalLM",
                           .read_hf = llama4::read_hf,
                           .computes = llama4::kComputes,
                           .hf_renames = llama4::kRenames,
                           .hf_interleaved_rope_rows = true,
                           .default_rope_theta = 500000.0,
                           .classifier = "",
                           .hf_defaults = llama4::kDefaults};

}  // namespace magister
