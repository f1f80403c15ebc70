// Youtu-LLM: DeepSeek-V3's latent attention with one MLP a layer.
// Source: transformers YoutuConfig and YoutuAttention.
#include <cmath>

#include "model/families/latent_fields.h"

namespace magister {
namespace youtu {

constexpr std::pair<const char*, std::int64_t> kDefaults[] = {{"kv_lora_rank", 512},
                                                              {"q_lora_rank", 1536},
                                                              {"qk_nope_head_dim", 128},
                                                              {"qk_rope_head_dim", 64},
                                                              {"v_head_dim", 128}};

void read_hf(const HfConfig& source, ModelConfig& config) {
  read_latent(source, config);
  config.tie_word_embeddings = source.boolean_or("tie_word_embeddings", true);
  if (!source.has("initializer_range"))
    config.initializer_range = 2.0 / std::sqrt(5.0 * static_cast<double>(config.hidden_size));
}

}  // namespace youtu

extern const Family kYoutuFamily;
const Family kYoutuFamily{.name = "youtu",
                          .model_type = "youtu",
                          .architecture = "YoutuForCausalLM",
                          .read_hf = youtu::read_hf,
                          .computes = kLatentComputes,
                          .classifier = "",
                          .hf_defaults = youtu::kDefaults};

}  // namespace magister
