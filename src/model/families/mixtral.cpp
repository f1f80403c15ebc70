// Mixtral: Mistral's layers with experts instead of the MLP. The probabilities of the chosen experts are divided by
// their sum. Its GGUF files have the architecture llama.
// Source: transformers MixtralConfig and MixtralSparseMoeBlock (arXiv 2401.04088).
#include "model/families/expert_fields.h"

namespace magister {
namespace mixtral {

constexpr std::pair<const char*, const char*> kRenames[] = {
    {"mlp.gate.weight", "block_sparse_moe.gate.weight"},
    {"mlp.experts.{}.gate_proj.weight", "block_sparse_moe.experts.{}.w1.weight"},
    {"mlp.experts.{}.down_proj.weight", "block_sparse_moe.experts.{}.w2.weight"},
    {"mlp.experts.{}.up_proj.weight", "block_sparse_moe.experts.{}.w3.weight"}};

void read_hf(const HfConfig& source, ModelConfig& config) {
  if (!source.has("rms_norm_eps")) config.rms_norm_eps = 1e-5;
  if (source.is_absent("num_key_value_heads")) config.num_key_value_heads = 8;
  config.sliding_window = source.integer_or("sliding_window", 0, 1, INT32_MAX);
  read_experts(source, config, "intermediate_size", 8, 2);
  config.norm_topk_prob = true;
  if (source.number_or("router_jitter_noise", 0.0, 0.0, 1.0) > 0) config.untrained_key = "router_jitter_noise";
}

}  // namespace mixtral

extern const Family kMixtralFamily;
const Family kMixtralFamily{.name = "mixtral",
                            .model_type = "mixtral",
                            .architecture = "MixtralForCausalLM",
                            .read_hf = mixtral::read_hf,
                            .computes = kExpertKeys,
                            .hf_renames = mixtral::kRenames,
                            .default_rope_theta = 1e6};

}  // namespace magister
