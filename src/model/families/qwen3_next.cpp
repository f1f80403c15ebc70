// Qwen3-Next and the text decoders of Qwen 3.5: three of four layers have linear attention (DeltaConfig), the others
// attention whose outputs have a gate; its rows stand behind each head's queries. Norm weights w mean 1 + w, except in
// linear attention. Qwen3-Next and Qwen 3.5 MoE have experts and a shared one with a gate.
// A text's three positions of a token are one number, as in Qwen3-VL.
// Source: transformers Qwen3NextConfig, Qwen3NextGatedDeltaNet, Qwen3NextAttention, Qwen3NextSparseMoeBlock,
// Qwen3_5TextConfig, Qwen3_5MoeTextConfig, Qwen3_5MoeTopKRouter.
#include <algorithm>

#include "magister/core/error.h"
#include "model/families/expert_fields.h"
#include "model/families/needed_value.h"

namespace magister {
namespace qwen3_next {

constexpr std::int64_t kMostHeads = 1 << 12, kMostHeadDim = 1 << 12;

// layer_types, or every full_attention_interval-th layer has full attention.
std::vector<bool> linear_layers(const HfConfig& source, std::int64_t num_layers) {
  std::vector<bool> linear = all_but_every(source.integer_or("full_attention_interval", 4, 1, 1 << 12), num_layers);
  if (!source.has("layer_types")) return linear;
  linear.clear();
  for (const std::string& type : source.texts("layer_types")) {
    MAGISTER_CHECK(type == "full_attention" || type == "linear_attention", ExitCode::kData,
                   "{}: layer_types has \"{}\" (known: full_attention, linear_attention); use another model",
                   printable(source.path()), printable(type));
    linear.push_back(type == "linear_attention");
  }
  MAGISTER_CHECK(std::ssize(linear) == num_layers, ExitCode::kData,
                 "{}: layer_types has {} entries for {} layers; fetch the config again", printable(source.path()),
                 linear.size(), num_layers);
  return linear;
}

void read_attention(const HfConfig& source, ModelConfig& config) {
  config.qk_norm = config.norm_weights_plus_one = true;
  config.attention_gate = AttentionGate::kSigmoid;
  config.gate_beside_queries = true;
  need_flag(source, "attention_bias", false, false);
  config.rotary_dim = source.rotary_dim(config.head_dim, 0.25);
  DeltaConfig delta;
  delta.key_heads = source.integer_or("linear_num_key_heads", 16, 1, kMostHeads);
  delta.value_heads = source.integer_or("linear_num_value_heads", 32, 1, kMostHeads);
  delta.key_dim = source.integer_or("linear_key_head_dim", 128, 1, kMostHeadDim);
  delta.value_dim = source.integer_or("linear_value_head_dim", 128, 1, kMostHeadDim);
  delta.taps = source.integer_or("linear_conv_kernel_dim", 4, 2, 64);
  delta.layer_has = linear_layers(source, config.num_hidden_layers);
  MAGISTER_CHECK(delta.value_heads % delta.key_heads == 0, ExitCode::kData,
                 "{}: linear_num_value_heads is {} and linear_num_key_heads {} (key heads share the value heads "
                 "evenly); fetch the config again",
                 printable(source.path()), delta.value_heads, delta.key_heads);
  const bool is_used = std::ranges::find(delta.layer_has, true) != delta.layer_has.end();
  MAGISTER_CHECK(!is_used || config.activation == Activation::kSilu, ExitCode::kData,
                 "{}: hidden_act is not silu (linear attention with another activation is not supported, and results "
                 "would be wrong); use another model",
                 printable(source.path()));
  config.delta = std::move(delta);
}

void read_shared(const HfConfig& source, ModelConfig& config) {
  config.shared_expert_gate = true;
  read_shared_experts(config, source.integer("shared_expert_intermediate_size", 1, 1 << 22));
}

void read_next(const HfConfig& source, ModelConfig& config) {
  read_attention(source, config);
  if (config.delta) config.delta->by_key_head = true;
  read_experts(source, config, "moe_intermediate_size", 512, 10);
  config.norm_topk_prob = source.boolean_or("norm_topk_prob", true);
  config.layer_is_sparse = stepped_sparse_layers(source, config.num_hidden_layers);
  read_shared(source, config);
}

void read_moe(const HfConfig& source, ModelConfig& config) {
  read_attention(source, config);
  read_experts(source, config, "moe_intermediate_size", 256, 8);
  config.norm_topk_prob = true;
  read_shared(source, config);
}

constexpr const char* kNextComputes[] = {"num_experts", "num_local_experts", "partial_rotary_factor", "yarn"};
constexpr const char* kComputes[] = {"num_experts",
                                     "num_local_experts",
                                     "partial_rotary_factor",
                                     "yarn",
                                     "mrope",
                                     "rope_parameters.mrope_section",
                                     "rope_parameters.mrope_interleaved"};
constexpr std::pair<const char*, const char*> kRenames[] = {
    {"mlp.shared_experts.gate_proj.weight", "mlp.shared_expert.gate_proj.weight"},
    {"mlp.shared_experts.up_proj.weight", "mlp.shared_expert.up_proj.weight"},
    {"mlp.shared_experts.down_proj.weight", "mlp.shared_expert.down_proj.weight"}};
constexpr std::pair<const char*, std::int64_t> kNextDefaults[] = {{"head_dim", 256},
                                                                  {"num_key_value_heads", 2},
                                                                  {"moe_intermediate_size", 512},
                                                                  {"shared_expert_intermediate_size", 512}};
constexpr std::pair<const char*, std::int64_t> kDenseDefaults[] = {{"head_dim", 256}, {"num_key_value_heads", 4}};
constexpr std::pair<const char*, std::int64_t> kMoeDefaults[] = {{"head_dim", 256},
                                                                 {"num_key_value_heads", 2},
                                                                 {"moe_intermediate_size", 512},
                                                                 {"shared_expert_intermediate_size", 512},
                                                                 {"intermediate_size", 512}};

}  // namespace qwen3_next

extern const Family kQwen3NextFamily, kQwen35Family, kQwen35MoeFamily;
const Family kQwen3NextFamily{.name = "qwen3_next",
                              .model_type = "qwen3_next",
                              .architecture = "Qwen3NextForCausalLM",
                              .read_hf = qwen3_next::read_next,
                              .computes = qwen3_next::kNextComputes,
                              .hf_renames = qwen3_next::kRenames,
                              .hf_defaults = qwen3_next::kNextDefaults};
const Family kQwen35Family{.name = "qwen3_5_text",
                           .model_type = "qwen3_5_text",
                           .architecture = "Qwen3_5ForCausalLM",
                           .read_hf = qwen3_next::read_attention,
                           .computes = qwen3_next::kComputes,
                           .classifier = "Qwen3_5TextForSequenceClassification",
                           .hf_defaults = qwen3_next::kDenseDefaults};
const Family kQwen35MoeFamily{.name = "qwen3_5_moe_text",
                              .model_type = "qwen3_5_moe_text",
                              .architecture = "Qwen3_5MoeForCausalLM",
                              .read_hf = qwen3_next::read_moe,
                              .computes = qwen3_next::kComputes,
                              .hf_renames = qwen3_next::kRenames,
                              .classifier = "",
                              .hf_defaults = qwen3_next::kMoeDefaults};

}  // namespace magister
