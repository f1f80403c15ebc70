// Qwen3 (dense): an RMS norm over each head of q and k before the rotary embedding, and a head size of its own.
// The text decoder of Qwen3-VL is one without windows: its three positions of a token are one number in a text without
// images.
// Source: transformers Qwen3Config, Qwen3Attention, Qwen3VLTextConfig and Qwen3VLTextRotaryEmbedding.
#include "magister/core/error.h"
#include "model/families/family.h"
#include "model/families/qwen_windows.h"

namespace magister {
namespace qwen3 {

void read_hf(const HfConfig& source, ModelConfig& config) {
  if (!source.has("head_dim")) config.head_dim = 128;  // the class's default; hidden_size / heads is not used
  config.qk_norm = true;
  config.qkv_bias = config.o_bias = source.boolean_or("attention_bias", false);
  read_qwen_windows(source, config);
}

void read_gguf(const GgufConfig& source, ModelConfig& config) {
  config.qk_norm = true;
  refuse_qwen_windows(source);
}

constexpr const char* kComputes[] = {"rope.scaling.yarn"};  // in GGUF files
constexpr const char* kVlComputes[] = {"mrope", "rope_parameters.mrope_section", "rope_parameters.mrope_interleaved"};
constexpr std::pair<const char*, std::int64_t> kVlDefaults[] = {{"vocab_size", 151936},
                                                                {"hidden_size", 4096},
                                                                {"intermediate_size", 22016},
                                                                {"num_hidden_layers", 32},
                                                                {"num_attention_heads", 32},
                                                                {"num_key_value_heads", 32},
                                                                {"max_position_embeddings", 128000}};

void read_vl(const HfConfig& source, ModelConfig& config) {
  if (!source.has("head_dim")) config.head_dim = 128;
  config.qk_norm = true;
  config.qkv_bias = config.o_bias = source.boolean_or("attention_bias", false);
}

}  // namespace qwen3

extern const Family kQwen3Family, kQwen3VlFamily;
const Family kQwen3VlFamily{.name = "qwen3_vl_text",
                            .model_type = "qwen3_vl_text",
                            .architecture = "Qwen3VLForConditionalGeneration",
                            .read_hf = qwen3::read_vl,
                            .computes = qwen3::kVlComputes,
                            .default_rope_theta = 500000.0,
                            .classifier = "",
                            .hf_defaults = qwen3::kVlDefaults};
const Family kQwen3Family{.name = "qwen3",
                          .model_type = "qwen3",
                          .architecture = "Qwen3ForCausalLM",
                          .gguf_architecture = "qwen3",
                          .read_hf = qwen3::read_hf,
                          .read_gguf = qwen3::read_gguf,
                          .computes = qwen3::kComputes};

}  // namespace magister
