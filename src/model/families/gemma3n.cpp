// Gemma 3n, text: Gemma 3's layers with plain norm weights, a softmax scale of 1 and a norm on v. The residual stream
// is several vectors (AltUp), Laurel blocks are added to attention, the MLPs of some layers let few gates pass, each
// token has a vector by layer, and the last layers use the keys and values of earlier ones.
// Source: transformers Gemma3nTextConfig, Gemma3nTextAltUp, Gemma3nTextLaurelBlock, Gemma3nTextMLP,
// Gemma3nTextAttention, Gemma3nTextDecoderLayer and Gemma3nTextModel.
#include <algorithm>

#include "magister/core/error.h"
#include "model/families/gemma_fields.h"

namespace magister {
namespace gemma3n {

constexpr const char* kComputes[] = {"gelu", "final_logit_softcapping", "rope_local_base_freq",
                                     "rope_parameters.full_attention"};
constexpr std::pair<const char*, std::int64_t> kDefaults[] = {{"vocab_size", 262400},
                                                              {"hidden_size", 2048},
                                                              {"intermediate_size", 16384},
                                                              {"num_hidden_layers", 35},
                                                              {"num_attention_heads", 8},
                                                              {"num_key_value_heads", 2},
                                                              {"head_dim", 256},
                                                              {"max_position_embeddings", 32768},
                                                              {"sliding_window", 512},
                                                              {"vocab_size_per_layer_input", 262144},
                                                              {"hidden_size_per_layer_input", 256},
                                                              {"altup_num_inputs", 4},
                                                              {"laurel_rank", 64},
                                                              {"num_kv_shared_layers", 15}};
constexpr double kLocalTheta = 10000.0, kLogitCap = 30.0, kDefaultSparsity = 0.95, kCoefClip = 120.0;
constexpr std::int64_t kSparseByDefault = 10;  // layers, in models that have more

void read_sparsity(const HfConfig& source, ModelConfig& config) {
  constexpr const char* kKey = "activation_sparsity_pattern";
  const auto N = static_cast<std::size_t>(config.num_hidden_layers);
  config.gate_sparsity = source.numbers(kKey, 0, 1 - 1e-6);
  if (!source.has(kKey)) {
    config.gate_sparsity.assign(N, 0);
    if (config.num_hidden_layers > kSparseByDefault)
      std::fill_n(config.gate_sparsity.begin(), kSparseByDefault, kDefaultSparsity);
  }
  MAGISTER_CHECK(config.gate_sparsity.size() == N, ExitCode::kData,
                 "{}: {} has {} numbers (the model has {} layers); fetch the config again", printable(source.path()),
                 kKey, config.gate_sparsity.size(), N);
}

void read_hf(const HfConfig& source, ModelConfig& config) {
  read_gemma_fields(source, config);
  MAGISTER_CHECK(source.text_or("hidden_activation", "gelu_pytorch_tanh") == "gelu_pytorch_tanh", ExitCode::kData,
                 "{}: hidden_activation is \"gelu\" (in Gemma 3n this is the exact GELU, which is not supported); use "
                 "another model",
                 printable(source.path()));
  config.norm_weights_plus_one = false;
  config.norm_placement = NormPlacement::kBoth;
  config.attention_multiplier = 1.0;
  config.qk_norm = config.v_norm = true;
  if (!source.is_null("final_logit_softcapping"))
    config.final_logit_softcapping = source.number_or("final_logit_softcapping", kLogitCap, 1e-3, 1e6);
  config.layer_is_sliding = source.sliding_layers(all_but_every(5, config.num_hidden_layers));
  config.sliding_window = source.integer("sliding_window", 1, INT32_MAX);
  RopeConfig local;
  local.theta = source.number_or("rope_local_base_freq", kLocalTheta, 1e-3, 1e15);
  config.sliding_rope =
      source.rope_of("sliding_attention", config.max_position_embeddings, local.theta).value_or(local);
  config.shared_kv_layers = source.integer("num_kv_shared_layers", 0, config.num_hidden_layers - 1);
  config.per_layer_width = source.integer("hidden_size_per_layer_input", 1, 1 << 16);
  config.per_layer_vocab = source.integer("vocab_size_per_layer_input", 1, 1 << 24);
  config.laurel_rank = source.integer("laurel_rank", 1, 1 << 20);
  AltUpConfig& altup = config.altup.emplace();
  altup.inputs = source.integer("altup_num_inputs", 1, 64);
  altup.active = source.integer_or("altup_active_idx", 0, 0, altup.inputs - 1);
  altup.scales_corrected = source.boolean_or("altup_correct_scale", true);
  if (!source.is_null("altup_coef_clip")) altup.coef_clip = source.number_or("altup_coef_clip", kCoefClip, 1e-6, 1e30);
  config.first_other_id = source.integer_or("first_other_id", 0, 0, 1 << 24);
  read_sparsity(source, config);
}

}  // namespace gemma3n

extern const Family kGemma3nFamily;
const Family kGemma3nFamily{.name = "gemma3n",
                            .model_type = "gemma3n_text",
                            .architecture = "Gemma3nForCausalLM",
                            .read_hf = gemma3n::read_hf,
                            .computes = gemma3n::kComputes,
                            .default_rope_theta = 1e6,
                            .classifier = "",
                            .hf_defaults = gemma3n::kDefaults,
                            .mlp_by_layer = true};

}  // namespace magister
