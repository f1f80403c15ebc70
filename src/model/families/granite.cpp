// Granite 3 and the dense models of Granite 4: Llama's layers with four multipliers: of embeddings, attention scores,
// block outputs and logits. The multiplier m of block outputs needs no code of its own. With h = m h', h + m f(norm(h))
// is m (h' + f(norm(h))). An RMS norm does not depend on scale: norm(h) with eps is norm(h') with eps / m^2. So the
// residual stream is stored divided by m, beginning with the embeddings.
// HyperCLOVA X multiplies the logits instead of dividing them, and may have norms on the output of blocks. GraniteMoE
// has experts instead of the MLP, whose gate and up are one tensor.
// Source: transformers GraniteConfig, GraniteDecoderLayer, HyperCLOVAXDecoderLayer and GraniteMoeTopKRouter; llama.cpp
// for GGUF files, whose converter reorders the rows of q and k as for Llama.
#include "magister/core/error.h"
#include "model/families/expert_fields.h"

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

using Renames = std::span<const std::pair<const char*, const char*>>;
constexpr std::pair<const char*, const char*> kPostNorms[] = {
    {"post_attention_layernorm.weight", "post_norm1.weight"},
    {"pre_feedforward_layernorm.weight", "post_attention_layernorm.weight"},
    {"post_feedforward_layernorm.weight", "post_norm2.weight"}};
constexpr const char* kMoeComputes[] = {"embedding_multiplier", "attention_multiplier", "residual_multiplier",
                                        "logits_scaling",       "num_experts",          "num_local_experts"};
constexpr std::pair<const char*, const char*> kMoeRenames[] = {
    {"mlp.gate.weight", "block_sparse_moe.router.layer.weight"},
    {"mlp.experts.gate_up_proj", "block_sparse_moe.input_linear.weight"},
    {"mlp.experts.{}.down_proj.weight", "block_sparse_moe.output_linear.weight"}};

void read_hf_hyperclovax(const HfConfig& source, ModelConfig& config) {
  read_hf(source, config);
  if (!source.has("attention_multiplier")) config.attention_multiplier = 0;
  config.logit_scale = source.number_or("logits_scaling", 1.0, kLeast, kMost);
  if (!source.boolean_or("use_post_norm", true)) return;
  config.norm_placement = NormPlacement::kBoth;
  const double multiplier = source.number_or("residual_multiplier", 1.0, kLeast, kMost);
  MAGISTER_CHECK(multiplier == 1.0, ExitCode::kData,
                 "{}: residual_multiplier is {} with use_post_norm (a factor of normed outputs is not computed, and "
                 "results without it would be wrong); use another model",
                 printable(source.path()), multiplier);
}

Renames hyperclovax_renames(const ModelConfig& config) {
  return config.norm_placement == NormPlacement::kBoth ? Renames(kPostNorms) : Renames();
}

void read_hf_moe(const HfConfig& source, ModelConfig& config) {
  read_hf(source, config);
  config.mlp_bias = false;
  read_experts(source, config, "intermediate_size", 8, 2);
  config.stacked_experts = config.fused_gate_up_proj = true;
  config.norm_topk_prob = true;  // the softmax is over the chosen experts
}

void read_gguf(const GgufConfig& source, ModelConfig& config) {
  config.attention_multiplier = source.number_or("attention.scale", 0.0, 0.0, kMost);  // 0 counts as absent
  config.embedding_multiplier = source.number_or("embedding_scale", 1.0, kLeast, kMost);
  config.logit_scale = 1.0 / source.number_or("logit_scale", 1.0, kLeast, kMost);
  divide_stream(config, source.number_or("residual_scale", 1.0, kLeast, kMost));
}

}  // namespace granite

extern const Family kGraniteFamily, kHyperClovaXFamily, kGraniteMoeFamily;
const Family kHyperClovaXFamily{.name = "hyperclovax",
                                .model_type = "hyperclovax",
                                .architecture = "HyperCLOVAXForCausalLM",
                                .read_hf = granite::read_hf_hyperclovax,
                                .computes = granite::kComputes,
                                .hf_renames_of = granite::hyperclovax_renames,
                                .classifier = ""};
const Family kGraniteMoeFamily{.name = "granitemoe",
                               .model_type = "granitemoe",
                               .architecture = "GraniteMoeForCausalLM",
                               .read_hf = granite::read_hf_moe,
                               .computes = granite::kMoeComputes,
                               .hf_renames = granite::kMoeRenames,
                               .classifier = ""};
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
