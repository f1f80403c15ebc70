// Qwen2 and Qwen2.5: Llama's layers, always with biases on q, k and v, and with windows in some layers if these are
// enabled.
// The text decoders of Qwen2-VL and Qwen2.5-VL are such: their three positions of a token are one number in a text
// without images.
// Source: transformers Qwen2Config, Qwen2Attention, Qwen2VLTextConfig, Qwen2_5_VLTextConfig and
// Qwen2_5_VLRotaryEmbedding.
#include "magister/core/error.h"
#include "model/families/family.h"
#include "model/families/qwen_windows.h"

namespace magister {
namespace qwen2 {

void read_hf(const HfConfig& source, ModelConfig& config) {
  config.qkv_bias = true;
  read_qwen_windows(source, config);
}

void read_gguf(const GgufConfig& source, ModelConfig& config) {
  config.qkv_bias = true;
  refuse_qwen_windows(source);
}

constexpr const char* kComputes[] = {"rope.scaling.yarn"};  // in GGUF files
constexpr std::pair<const char*, std::int64_t> kTextDefaults[] = {{"vocab_size", 151936},
                                                                  {"hidden_size", 4096},
                                                                  {"intermediate_size", 22016},
                                                                  {"num_hidden_layers", 32},
                                                                  {"num_attention_heads", 32},
                                                                  {"num_key_value_heads", 32},
                                                                  {"max_position_embeddings", 32768}};
constexpr const char* kVlComputes[] = {"mrope", "rope_parameters.mrope_section"};
constexpr std::pair<const char*, std::int64_t> kVlDefaults[] = {{"vocab_size", 152064},
                                                                {"hidden_size", 8192},
                                                                {"intermediate_size", 29568},
                                                                {"num_hidden_layers", 80},
                                                                {"num_attention_heads", 64},
                                                                {"num_key_value_heads", 8},
                                                                {"max_position_embeddings", 32768},
                                                                {"max_window_layers", 80}};

void read_vl(const HfConfig& source, ModelConfig& config) {
  read_hf(source, config);
  if (!source.has("rms_norm_eps")) config.rms_norm_eps = 1e-5;
  MAGISTER_CHECK(config.head_dim * config.num_attention_heads == config.hidden_size, ExitCode::kData,
                 "{}: {} heads of {} are not the hidden size {} (heads of another size are not defined in this "
                 "family); fetch the config again",
                 printable(source.path()), config.num_attention_heads, config.head_dim, config.hidden_size);
}

}  // namespace qwen2

extern const Family kQwen2Family, kQwen2VlFamily, kQwen25VlFamily;
const Family kQwen2VlFamily{.name = "qwen2_vl_text",
                            .model_type = "qwen2_vl_text",
                            .architecture = "Qwen2VLForConditionalGeneration",
                            .read_hf = qwen2::read_vl,
                            .computes = qwen2::kVlComputes,
                            .default_rope_theta = 1e6,
                            .classifier = "",
                            .hf_defaults = qwen2::kVlDefaults};
const Family kQwen25VlFamily{.name = "qwen2_5_vl_text",
                             .model_type = "qwen2_5_vl_text",
                             .architecture = "Qwen2_5_VLForConditionalGeneration",
                             .read_hf = qwen2::read_vl,
                             .computes = qwen2::kVlComputes,
                             .default_rope_theta = 1e6,
                             .classifier = "",
                             .hf_defaults = qwen2::kVlDefaults};
const Family kQwen2Family{.name = "qwen2",
                          .model_type = "qwen2",
                          .architecture = "Qwen2ForCausalLM",
                          .gguf_architecture = "qwen2",
                          .read_hf = qwen2::read_hf,
                          .read_gguf = qwen2::read_gguf,
                          .computes = qwen2::kComputes,
                          .hf_text_defaults = qwen2::kTextDefaults};

}  // namespace magister
