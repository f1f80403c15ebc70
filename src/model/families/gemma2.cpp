// Gemma 2: Gemma 1 with norms also on the output of blocks, softcaps on attention scores and logits, and a window in
// every other layer, beginning with the first. VaultGemma has no norms on the output of blocks.
// Source: transformers Gemma2Config, Gemma2Attention (arXiv 2408.00118) and VaultGemmaDecoderLayer; llama.cpp for GGUF
// files.
#include <cmath>

#include "model/families/gemma_fields.h"

namespace magister {
namespace gemma2 {

constexpr const char* kComputes[] = {"gelu", "query_pre_attn_scalar", "attn_logit_softcapping",
                                     "final_logit_softcapping", "attention.scale"};
constexpr std::pair<const char*, const char*> kVaultRenames[] = {
    {"post_attention_layernorm.weight", "pre_feedforward_layernorm.weight"}};
constexpr double kAttentionCap = 50.0, kLogitCap = 30.0;  // for a config without these keys

void read_hf(const HfConfig& source, ModelConfig& config) {
  read_gemma_layers(source, config, kAttentionCap, kLogitCap, 2);
}

void read_hf_vault(const HfConfig& source, ModelConfig& config) {
  read_hf(source, config);
  config.norm_placement = NormPlacement::kInput;
}

void read_gguf(const GgufConfig& source, ModelConfig& config) {
  read_gemma_layers(source, config, kAttentionCap, kLogitCap, 2);
  // GGUF files lack query_pre_attn_scalar. It is the head size in all models but the 27B one, which llama.cpp
  // recognises by its 46 layers.
  if (config.attention_multiplier == 0 && config.num_hidden_layers == 46) {
    const std::int64_t width = config.hidden_size / config.num_attention_heads;
    config.attention_multiplier = 1.0 / std::sqrt(static_cast<double>(width));
  }
}

}  // namespace gemma2

extern const Family kGemma2Family, kVaultGemmaFamily;
const Family kVaultGemmaFamily{.name = "vaultgemma",
                               .model_type = "vaultgemma",
                               .architecture = "VaultGemmaForCausalLM",
                               .read_hf = gemma2::read_hf_vault,
                               .computes = gemma2::kComputes,
                               .hf_renames = gemma2::kVaultRenames,
                               .classifier = ""};
const Family kGemma2Family{.name = "gemma2",
                           .model_type = "gemma2",
                           .architecture = "Gemma2ForCausalLM",
                           .gguf_architecture = "gemma2",
                           .read_hf = gemma2::read_hf,
                           .read_gguf = gemma2::read_gguf,
                           .computes = gemma2::kComputes};

}  // namespace magister
