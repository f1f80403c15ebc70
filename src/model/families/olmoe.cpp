// OLMoE: Llama's layers with experts, norms on q and k over all heads together, and q, k and v clipped if the config
// says so. FlexOlmo has the norms of OLMo 2, on the output of blocks, and clips nothing.
// Source: transformers OlmoeConfig, OlmoeAttention and OlmoeTopKRouter (arXiv 2409.02060).
#include "magister/core/error.h"
#include "model/families/expert_fields.h"

namespace magister {
namespace olmoe {

constexpr const char* kComputes[] = {"num_experts", "num_local_experts", "expert_count", "clip_qkv"};

void set_layers(ModelConfig& config) { config.qk_norm = config.qk_norm_of_all_heads = true; }

void read_hf(const HfConfig& source, ModelConfig& config) {
  set_layers(config);
  if (!source.has("rms_norm_eps")) config.rms_norm_eps = 1e-5;
  config.qkv_bias = config.o_bias = source.boolean_or("attention_bias", false);
  config.clip_qkv = source.number_or("clip_qkv", 0.0, 0.0, 1e30);
  MAGISTER_CHECK(!source.has("clip_qkv") || config.clip_qkv > 0, ExitCode::kData,
                 "{}: clip_qkv is 0 (all queries, keys and values would be 0); make it null for no clipping",
                 printable(source.path()));
  read_experts(source, config, "intermediate_size", 64, 8);
  config.norm_topk_prob = source.boolean_or("norm_topk_prob", false);
}

void read_hf_flex(const HfConfig& source, ModelConfig& config) {
  set_layers(config);
  config.norm_placement = NormPlacement::kOutput;
  config.qkv_bias = config.o_bias = source.boolean_or("attention_bias", false);
  read_experts(source, config, "intermediate_size", 7, 5);
  config.norm_topk_prob = source.boolean_or("norm_topk_prob", false);
}

// llama.cpp does not divide the probabilities by their sum in this family.
void read_gguf(const GgufConfig& source, ModelConfig& config) {
  set_layers(config);
  read_experts(source, config, "feed_forward_length");
}

}  // namespace olmoe

extern const Family kOlmoeFamily, kFlexOlmoFamily;
const Family kFlexOlmoFamily{.name = "flex_olmo",
                             .model_type = "flex_olmo",
                             .architecture = "FlexOlmoForCausalLM",
                             .read_hf = olmoe::read_hf_flex,
                             .computes = kExpertKeys,
                             .default_rope_theta = 500000.0,
                             .classifier = ""};
const Family kOlmoeFamily{.name = "olmoe",
                          .model_type = "olmoe",
                          .architecture = "OlmoeForCausalLM",
                          .gguf_architecture = "olmoe",
                          .read_hf = olmoe::read_hf,
                          .read_gguf = olmoe::read_gguf,
                          .computes = olmoe::kComputes,
                          .classifier = ""};

}  // namespace magister
