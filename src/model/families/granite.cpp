// Granite 3 and the dense models of Granite 4: Llama's layers with four multipliers: of embeddings, attention scores,
// block outputs and logits. The multiplier m of block outputs needs no code of its own. With h = m h', h + m f(norm(h))
// is m (h' + f(norm(h))). An RMS norm does not depend on scale: norm(h) with eps is norm(h') with eps / m^2. So the
// residual stream is stored divided by m, beginning with the embeddings.
// Source: transformers GraniteConfig and GraniteDecoderLayer; llama.cpp for GGUF files, whose converter reorders the
// rows of q and k as for Llama.
#include "magister/core/error.h"
#include "model/families/family.h"

namespace magister {
namespace granite {

constexpr double kLeast = 1e-4, kMost = 1e4;
constexpr const char* kComputes[] = {"embedding_multiplier", "attention_multiplier", "residual_multiplier",
                                     "logits_scaling",       "embedding_scale",      "attention.scale",
                                     "residual_scale",       "logit_scale"};

void divide_stream(ModelConfig& config, double residual_multiplier) {
  config.embedding_multiplier /= residual_multiplier;
  config.rms_norm_eps /= residual_multiplier * residual_multiplier;
}

void read_hf(const HfConfig& source, ModelConfig& config) {
  config.qkv_bias = config.o_bias = source.boolean_or("attention_bias", false);
  config.mlp_bias = source.boolean_or("mlp_bias", false);
  config.attention_multiplier = source.number_or("attention_multiplier", 1.0, kLeast, kMost);
  config.embedding_multiplier = source.number_or("embedding_multiplier", 1.0, kLeast, kMost);
  config.logit_scale = 1.0 / source.number_or("logits_scaling", 1.0, kLeast, kMost);
  divide_stream(config, source.number_or("residual_multiplier", 1.0, kLeast, kMost));
}

void read_gguf(const GgufConfig& source, ModelConfig& config) {
  config.attention_multiplier = source.number_or("attention.scale", 0.0, 0.0, kMost);  // 0 counts as absent
  config.embedding_multiplier = source.number_or("embedding_scale", 1.0, kLeast, kMost);
  config.logit_scale = 1.0 / source.number_or("logit_scale", 1.0, kLeast, kMost);
  divide_stream(config, source.number_or("residual_scale", 1.0, kLeast, kMost));
}

}  // namespace granite

extern const Family kGraniteFamily;
const Family kGraniteFamily{.name = "granite",
                            .model_type = "granite",
                            .architecture = "GraniteForCausalLM",
                            .gguf_architecture = "granite",
                            .gguf_interleaved_rope_rows = true,
                            .read_hf = granite::read_hf,
                            .read_gguf = granite::read_gguf,
                            .computes = granite::kComputes,
                            .classifier = ""};

}  // namespace magister
