// StableLM: Llama's layers with layer norms that add a bias; a part of each head is rotated. Attention and MLP may read
// the same norm and be added together.
// Source: transformers StableLmConfig, StableLmAttention and StableLmDecoderLayer.
#include "model/families/family.h"
#include "model/families/needed_value.h"

namespace magister {
namespace stablelm {

constexpr const char* kComputes[] = {"partial_rotary_factor", "use_parallel_residual"};

void read_hf(const HfConfig& source, ModelConfig& config) {
  if (source.is_absent("num_key_value_heads")) config.num_key_value_heads = 32;
  config.norm_kind = NormKind::kLayer;
  config.norm_bias = true;
  config.rms_norm_eps = source.number_or("layer_norm_eps", 1e-5, 1e-12, 1.0);
  config.qkv_bias = source.boolean_or("use_qkv_bias", false);
  config.parallel_residual = source.boolean_or("use_parallel_residual", false);
  config.rotary_dim = source.rotary_dim(config.head_dim, 0.25);
  need_even_heads(source, config);
}

}  // namespace stablelm

extern const Family kStableLmFamily;
const Family kStableLmFamily{.name = "stablelm",
                             .model_type = "stablelm",
                             .architecture = "StableLmForCausalLM",
                             .read_hf = stablelm::read_hf,
                             .computes = stablelm::kComputes};

}  // namespace magister
