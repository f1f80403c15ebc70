// SmolLM3: Llama's layers, of which every fourth has no rotary embedding. GGUF's converter reorders the rows of q and k
// as for Llama.
// Source: transformers SmolLM3Config and SmolLM3Attention; llama.cpp for GGUF files.
#include "magister/core/error.h"
#include "model/families/family.h"

namespace magister {
namespace smollm3 {

constexpr const char* kComputes[] = {"no_rope_layers", "no_rope_layer_interval", "rope.scaling.yarn"};

void read_hf(const HfConfig& source, ModelConfig& config) {
  config.tie_word_embeddings = source.boolean_or("tie_word_embeddings", true);
  config.qkv_bias = config.o_bias = source.boolean_or("attention_bias", false);
  config.mlp_bias = source.boolean_or("mlp_bias", false);
  if (source.is_absent("num_key_value_heads"))
    config.num_key_value_heads = 4;  // the class's default; null: as many as query heads
  // Despite its name, the list says which layers have a rotary embedding: 1 means yes, 0 means no.
  config.layer_has_rope = source.flags("no_rope_layers");
  if (static_cast<std::int64_t>(config.layer_has_rope.size()) > config.num_hidden_layers)
    config.layer_has_rope.resize(static_cast<std::size_t>(config.num_hidden_layers));
  if (!source.has("no_rope_layers"))
    config.layer_has_rope =
        all_but_every(source.integer_or("no_rope_layer_interval", 4, 1, 1 << 12), config.num_hidden_layers);
  for (const std::string& type : source.texts("layer_types")) {
    MAGISTER_CHECK(
        type == "full_attention", ExitCode::kData,
        "{}: layer_types has \"{}\" (layers of this family are computed with full_attention only); use another model",
        printable(source.path()), printable(type));
  }
  MAGISTER_CHECK(!source.boolean_or("use_sliding_window", false), ExitCode::kData,
                 "{}: use_sliding_window is true (windows of this family are not computed); use another model",
                 printable(source.path()));
}

void read_gguf(const GgufConfig&, ModelConfig& config) {
  // The file does not say so; llama.cpp has the same fixed rule.
  config.layer_has_rope = all_but_every(4, config.num_hidden_layers);
}

}  // namespace smollm3

extern const Family kSmolLm3Family;
const Family kSmolLm3Family{.name = "smollm3",
                            .model_type = "smollm3",
                            .architecture = "SmolLM3ForCausalLM",
                            .gguf_architecture = "smollm3",
                            .gguf_interleaved_rope_rows = true,
                            .read_hf = smollm3::read_hf,
                            .read_gguf = smollm3::read_gguf,
                            .computes = smollm3::kComputes,
                            .default_rope_theta = 2000000.0};

}  // namespace magister
