// Qwen2-MoE: Qwen2's attention, with experts in every layer, or in every decoder_sparse_step-th layer that
// mlp_only_layers does not list, and with a shared expert whose weight is a sigmoid of the token's own.
// Source: transformers Qwen2MoeConfig, Qwen2MoeSparseMoeBlock and Qwen2MoeTopKRouter.
#include <algorithm>

#include "magister/core/error.h"
#include "model/families/expert_fields.h"

namespace magister {
namespace qwen2_moe {

constexpr std::pair<const char*, const char*> kRenames[] = {
    {"mlp.shared_experts.gate_proj.weight", "mlp.shared_expert.gate_proj.weight"},
    {"mlp.shared_experts.up_proj.weight", "mlp.shared_expert.up_proj.weight"},
    {"mlp.shared_experts.down_proj.weight", "mlp.shared_expert.down_proj.weight"}};
constexpr std::pair<const char*, std::int64_t> kDefaults[] = {
    {"num_key_value_heads", 16}, {"moe_intermediate_size", 1408}, {"shared_expert_intermediate_size", 5632}};

void read_windows(const HfConfig& source, ModelConfig& config) {
  if (!source.boolean_or("use_sliding_window", false)) {
    const std::vector<std::string> types = source.texts("layer_types");
    MAGISTER_CHECK(
        std::ranges::find(types, "sliding_attention") == types.end(), ExitCode::kData,
        "{}: layer_types has sliding_attention, but use_sliding_window is not true (the layers have no window "
        "and cannot be computed); fetch the config again",
        printable(source.path()));
    return;
  }
  const std::int64_t window = source.integer_or("sliding_window", 4096, 1, INT32_MAX);
  const std::int64_t below = source.integer_or("max_window_layers", 28, 0, INT32_MAX);
  std::vector<bool> layers;
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) layers.push_back(i % 2 == 0 && i < below);
  config.layer_is_sliding = source.sliding_layers(std::move(layers));
  config.sliding_window = window;
}

void read_hf(const HfConfig& source, ModelConfig& config) {
  config.qkv_bias = source.boolean_or("qkv_bias", true);
  read_windows(source, config);
  read_experts(source, config, "moe_intermediate_size", 60, 4);
  read_shared_experts(config, source.integer("shared_expert_intermediate_size", 1, 1 << 22));
  config.shared_expert_gate = true;
  config.norm_topk_prob = source.boolean_or("norm_topk_prob", false);
  config.layer_is_sparse = stepped_sparse_layers(source, config.num_hidden_layers);
}

}  // namespace qwen2_moe

extern const Family kQwen2MoeFamily;
const Family kQwen2MoeFamily{.name = "qwen2_moe",
                             .model_type = "qwen2_moe",
                             .architecture = "Qwen2MoeForCausalLM",
                             .read_hf = qwen2_moe::read_hf,
                             .computes = kExpertKeys,
                             .hf_renames = qwen2_moe::kRenames,
                             .hf_defaults = qwen2_moe::kDefaults};

}  // namespace magister
