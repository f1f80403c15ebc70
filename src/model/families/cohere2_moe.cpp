// Command A+ (cohere2_moe): Cohere 2's parallel blocks with experts in place of the MLP, dense layers first, and an RMS
// norm where rms_norm_eps is given. A router takes the softmax of the chosen logits, or their sigmoids; shared experts
// are added, or averaged with the others.
// Source: transformers Cohere2MoeConfig, Cohere2MoeTopKRouter, Cohere2MoeSparseMoeBlock and Cohere2MoeAttention.
#include <algorithm>

#include "magister/core/error.h"
#include "model/families/expert_fields.h"

namespace magister {
namespace cohere2_moe {

constexpr const char* kComputes[] = {"logit_scale", "num_experts", "num_local_experts"};
constexpr std::pair<const char*, std::int64_t> kDefaults[] = {{"head_dim", 128}};

void read_router(const HfConfig& source, ModelConfig& config) {
  read_experts(source, config, "intermediate_size", 8, 2);
  const std::string scores = source.text_or("expert_selection_fn", "softmax");
  MAGISTER_CHECK(scores == "softmax" || scores == "sigmoid", ExitCode::kData,
                 "{}: expert_selection_fn is \"{}\" (known: softmax, sigmoid); use another model",
                 printable(source.path()), printable(scores));
  const bool sigmoid = scores == "sigmoid";
  if (sigmoid) config.router.scores = RouterConfig::Scores::kSigmoid;
  config.norm_topk_prob = !sigmoid || source.boolean_or("norm_topk_prob", true);
  config.num_shared_experts = source.integer_or("num_shared_experts", 0, 0, kMostExperts);
  const std::string strategy = source.text_or("shared_expert_combination_strategy", "average");
  MAGISTER_CHECK(strategy == "average" || strategy == "sum", ExitCode::kData,
                 "{}: shared_expert_combination_strategy is \"{}\" (known: average, sum); use another model",
                 printable(source.path()), printable(strategy));
  if (config.num_shared_experts > 0 && strategy == "average") config.router.scaling = config.router.shared_weight = 0.5;
}

void read_hf(const HfConfig& source, ModelConfig& config) {
  const std::int64_t L = config.num_hidden_layers;
  const bool centred = !source.has("rms_norm_eps");
  config.norm_kind = centred ? NormKind::kLayer : NormKind::kRms;
  if (centred) config.rms_norm_eps = source.number_or("layer_norm_eps", 1e-5, 1e-12, 1.0);
  config.parallel_residual = true;
  config.logit_scale = source.number_or("logit_scale", 0.0625, 1e-6, 1e6);
  config.tie_word_embeddings = source.boolean_or("tie_word_embeddings", true);
  config.qkv_bias = config.o_bias = source.boolean_or("attention_bias", false);
  const std::int64_t dense = source.integer_or("first_k_dense_replace", 0, 0, L),
                     pattern = source.integer_or("sliding_window_pattern", 4, 1, 1 << 12),
                     dense_pattern = source.integer_or("prefix_dense_sliding_window_pattern", 1, 1, 1 << 12);
  std::vector<bool> slides = all_but_every(dense_pattern, dense);
  for (const bool one : all_but_every(pattern, L - dense)) slides.push_back(one);
  config.layer_is_sliding = source.sliding_layers(std::move(slides));
  MAGISTER_CHECK(!source.is_null("sliding_window"), ExitCode::kData,
                 "{}: sliding_window is null (the layers with a window are those with a rotary embedding); fetch the "
                 "config again",
                 printable(source.path()));
  config.sliding_window = source.integer_or("sliding_window", 4096, 1, INT32_MAX);
  read_router(source, config);
  config.layer_is_sparse = sparse_layers(source, dense, L);
  config.layer_has_rope = config.layer_is_sliding;
  const std::size_t layers = std::min(config.layer_has_rope.size(), config.layer_is_sparse.size());
  for (std::size_t i = 0; dense_pattern == 1 && i < layers; ++i) {
    if (!config.layer_is_sparse[i]) config.layer_has_rope[i] = true;
  }
  const bool any_dense = std::ranges::find(config.layer_is_sparse, false) != config.layer_is_sparse.end();
  if (any_dense) {
    config.intermediate_size =
        source.integer_or("prefix_dense_intermediate_size", config.moe_intermediate_size, 1, 1 << 22);
  }
}

}  // namespace cohere2_moe

extern const Family kCohere2MoeFamily;
const Family kCohere2MoeFamily{.name = "cohere2_moe",
                               .model_type = "cohere2_moe",
                               .architecture = "Cohere2MoeForCausalLM",
                               .read_hf = cohere2_moe::read_hf,
                               .computes = cohere2_moe::kComputes,
                               .hf_interleaved_rope_rows = true,
                               .classifier = "",
                               .hf_defaults = cohere2_moe::kDefaults};

}  // namespace magister
