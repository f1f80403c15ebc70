// OLMo (1): Llama's layers with layer norms that have no weights.
// Source: transformers OlmoConfig, OlmoLayerNorm and OlmoAttention.
#include "model/families/family.h"

namespace magister {
namespace olmo {

constexpr const char* kComputes[] = {"clip_qkv"};

void read_hf(const HfConfig& source, ModelConfig& config) {
  config.norm_kind = NormKind::kLayer;
  config.weightless_norms = true;
  config.rms_norm_eps = 1e-5;
  config.qkv_bias = config.o_bias = source.boolean_or("attention_bias", false);
  config.clip_qkv = source.number_or("clip_qkv", 0.0, 1e-6, 1e6);
}

}  // namespace olmo

extern const Family kOlmoFamily;
const Family kOlmoFamily{.name = "olmo",
                         .model_type = "olmo",
                         .architecture = "OlmoForCausalLM",
                         .read_hf = olmo::read_hf,
                         .computes = olmo::kComputes};

}  // namespace magister
