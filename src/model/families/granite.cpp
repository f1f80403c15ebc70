// Granite 3 and the dense models of Granite 4: Llama's layers with four multipliers: of embeddings, attention scores,
// block outputs and logits. The multiplier of block outputs: scaled_stream.h.
// GraniteMoeShared adds a shared expert, whose gate and up are one tensor. The SWA classes have attention sinks,
// windows, and a rotary base for each layer; 0 means none.
// HyperCLOVA X multiplies the logits instead of dividing them, and may have norms on the output of blocks. GraniteMoE
// has experts instead of the MLP, whose gate and up are one tensor.
// Source: transformers GraniteConfig, GraniteDecoderLayer, HyperCLOVAXDecoderLayer and GraniteMoeTopKRouter; llama.cpp
// for GGUF files, whose converter reorders the rows of q and k as for Llama.
#include "magister/core/error.h"
#include "model/families/expert_fields.h"
#include "model/families/scaled_stream.h"

namespace magister {
namespace granite {

constexpr double kLeast = 1e-4, kMost = 1e4;
constexpr const char* kComputes[] = {"embedding_multiplier", "attention_multiplier", "residual_multiplier",
                                     "logits_scaling",       "embedding_scale",      "attention.scale",
                                     "residual_scale",       "logit_scale"};

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
    {"mlp.experts.{}.down_proj.weight", "block_sparse_moe.output_linear.weight"},
    {"mlp.shared_experts.gate_up_proj.weight", "shared_mlp.input_linear.weight"},
    {"mlp.shared_experts.down_proj.weight", "shared_mlp.output_linear.weight"}};

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

void read_hf_shared(const HfConfig& source, ModelConfig& config) {
  read_hf_moe(source, config);
  const std::int64_t columns = source.integer_or("shared_intermediate_size", 0, 0, 1 << 22);
  if (columns > 0) read_shared_experts(config, columns);
  config.fused_shared_experts = true;
}

// The rotary bases of the layers: one for those with a window, one for the others, each of which may be 0.
void read_bases(const HfConfig& source, ModelConfig& config) {
  const std::vector<double> bases = source.numbers("layer_rope_theta", 0, 1e15);
  if (bases.empty()) return;
  MAGISTER_CHECK(static_cast<std::int64_t>(bases.size()) == config.num_hidden_layers, ExitCode::kData,
                 "{}: layer_rope_theta has {} entries for {} layers; fetch the config again", printable(source.path()),
                 bases.size(), config.num_hidden_layers);
  double of_kind[2] = {0, 0};
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const double base = bases[static_cast<std::size_t>(i)];
    config.layer_has_rope.push_back(base > 0);
    double& known = of_kind[config.slides(i)];
    if (base > 0 && known == 0) known = base;
    MAGISTER_CHECK(base == 0 || base == known, ExitCode::kData,
                   "{}: layer_rope_theta has {} and {} for layers of one kind of attention (only one base for layers "
                   "with a window and one for the others is supported); use another model",
                   printable(source.path()), known, base);
  }
  if (of_kind[1] > 0 && of_kind[1] != of_kind[0]) (config.sliding_rope = config.rope)->theta = of_kind[1];
  if (of_kind[0] > 0) config.rope.theta = of_kind[0];
}

void read_windows(const HfConfig& source, ModelConfig& config) {
  config.attention_sinks = true;
  std::vector<bool> slides;
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) slides.push_back(i % 4 != 0);
  config.layer_is_sliding = source.sliding_layers(std::move(slides));
  config.sliding_window = source.integer("sliding_window", 1, INT32_MAX);
  read_bases(source, config);
}

void read_hf_swa(const HfConfig& source, ModelConfig& config) {
  read_hf(source, config);
  if (!source.has("rms_norm_eps")) config.rms_norm_eps = 1e-5;
  config.tie_word_embeddings = source.boolean_or("tie_word_embeddings", true);
  read_windows(source, config);
}

void read_hf_moe_swa(const HfConfig& source, ModelConfig& config) {
  read_hf_shared(source, config);
  read_windows(source, config);
}

constexpr std::pair<const char*, std::int64_t> kWindowDefaults[] = {{"sliding_window", 128},
                                                                    {"num_key_value_heads", 4}};
constexpr std::pair<const char*, std::int64_t> kMoeWindowDefaults[] = {{"sliding_window", 128}};

void read_gguf(const GgufConfig& source, ModelConfig& config) {
  config.attention_multiplier = source.number_or("attention.scale", 0.0, 0.0, kMost);  // 0 counts as absent
  config.embedding_multiplier = source.number_or("embedding_scale", 1.0, kLeast, kMost);
  config.logit_scale = 1.0 / source.number_or("logit_scale", 1.0, kLeast, kMost);
  divide_stream(config, source.number_or("residual_scale", 1.0, kLeast, kMost));
}

}  // namespace granite

extern const Family kGraniteFamily, kHyperClovaXFamily, kGraniteMoeFamily, kGraniteMoeSharedFamily, kGraniteSwaFamily,
    kGraniteMoeSwaFamily;
const Family kGraniteMoeSharedFamily{.name = "granitemoeshared",
                                     .model_type = "granitemoeshared",
                                     .architecture = "GraniteMoeSharedForCausalLM",
                                     .read_hf = granite::read_hf_shared,
                                     .computes = granite::kMoeComputes,
                                     .hf_renames = granite::kMoeRenames,
                                     .classifier = ""};
const Family kGraniteSwaFamily{.name = "granite_swa",
                               .model_type = "granite_swa",
                               .architecture = "GraniteSWAForCausalLM",
                               .read_hf = granite::read_hf_swa,
                               .computes = granite::kComputes,
                               .classifier = "",
                               .hf_defaults = granite::kWindowDefaults};
const Family kGraniteMoeSwaFamily{.name = "granitemoe_swa",
                                  .model_type = "granitemoe_swa",
                                  .architecture = "GraniteMoeSWAForCausalLM",
                                  .read_hf = granite::read_hf_moe_swa,
                                  .computes = granite::kMoeComputes,
                                  .hf_renames = granite::kMoeRenames,
                                  .classifier = "",
                                  .hf_defaults = granite::kMoeWindowDefaults};
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
