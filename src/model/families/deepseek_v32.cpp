// DeepSeek-V3.2 and GLM-5: DeepSeek-V3 whose attention sees the keys that an indexer chooses. In V3.2 every layer has
// an indexer, which turns halves; in GLM-5 some layers see the keys of an earlier one, and indexers turn pairs.
// Sources: transformers DeepseekV32Config, DeepseekV32Indexer, GlmMoeDsaConfig, GlmMoeDsaIndexer and
// GlmMoeDsaAttention; arXiv 2603.12201 (shared choices).
#include <algorithm>

#include "magister/core/error.h"
#include "model/families/expert_fields.h"
#include "model/families/latent_fields.h"

namespace magister {
namespace deepseek_v32 {

constexpr std::pair<const char*, std::int64_t> kDefaults[] = {
    {"kv_lora_rank", 512}, {"q_lora_rank", 1536},     {"qk_nope_head_dim", 128},  {"qk_rope_head_dim", 64},
    {"v_head_dim", 128},   {"n_routed_experts", 256}, {"n_shared_experts", 1},    {"moe_intermediate_size", 2048},
    {"n_group", 8},        {"topk_group", 4},         {"num_experts_per_tok", 8}, {"first_k_dense_replace", 3},
    {"index_topk", 2048},  {"index_head_dim", 128},   {"index_n_heads", 64}};
constexpr std::pair<const char*, std::int64_t> kGlmDefaults[] = {
    {"kv_lora_rank", 512}, {"q_lora_rank", 2048},     {"qk_nope_head_dim", 192},  {"qk_rope_head_dim", 64},
    {"v_head_dim", 256},   {"n_routed_experts", 256}, {"n_shared_experts", 1},    {"moe_intermediate_size", 2048},
    {"n_group", 1},        {"topk_group", 1},         {"num_experts_per_tok", 8}, {"first_k_dense_replace", 3},
    {"index_topk", 2048},  {"index_head_dim", 128},   {"index_n_heads", 32}};

void read_common(const HfConfig& source, ModelConfig& config, bool pairs) {
  read_latent(source, config);
  read_indexer(source, config, pairs);
  read_sigmoid_router(source, config);
  require_text(source, "scoring_func", "sigmoid");
  require_text(source, "topk_method", "noaux_tc");
  require_every_layer(source);
  config.norm_topk_prob = source.boolean_or("norm_topk_prob", true);
  if (source.is_absent("routed_scaling_factor")) config.router.scaling = 2.5;
  if (source.has("mlp_layer_types")) config.layer_is_sparse = sparse_layers(source, 0, config.num_hidden_layers);
  MAGISTER_CHECK(!source.boolean_or("mlp_bias", false), ExitCode::kData,
                 "{}: mlp_bias is true (transformers ignores it, and programs would differ); use another model",
                 printable(source.path()));
  for (const char* key : {"num_experts", "num_local_experts"}) {
    MAGISTER_CHECK(source.integer_or(key, config.num_experts, 1, kMostExperts) == config.num_experts, ExitCode::kData,
                   "{}: {} is not n_routed_experts {} (the number of experts is unknown); fetch the config again",
                   printable(source.path()), key, config.num_experts);
  }
}

void read_v32(const HfConfig& source, ModelConfig& config) { read_common(source, config, false); }

// The layers with an indexer of their own: by indexer_types, else by index_topk_pattern, else every
// index_topk_freq-th from layer index_skip_topk_offset - 1 on, and those before it.
std::vector<bool> choosing_layers(const HfConfig& source, std::int64_t layers) {
  std::vector<std::string> types = source.texts("indexer_types");
  if (!source.has("indexer_types") && source.is_text("index_topk_pattern")) {
    for (const char letter : source.text_or("index_topk_pattern", "")) {
      const std::string text(1, letter);
      types.push_back(letter == 'F' ? "full" : letter == 'S' ? "shared" : text);
    }
  } else if (!source.has("indexer_types") && source.has("index_topk_pattern")) {
    types = source.texts("index_topk_pattern");
  } else if (!source.has("indexer_types")) {
    const std::int64_t step = std::max<std::int64_t>(1, source.integer_or("index_topk_freq", 1, 0, 1 << 12)),
                       first = source.integer_or("index_skip_topk_offset", 2, 0, 1 << 12);
    for (std::int64_t i = 0; i < layers; ++i)
      types.push_back(std::max<std::int64_t>(i - first + 1, 0) % step == 0 ? "full" : "shared");
  }
  std::vector<bool> chooses;
  for (const std::string& type : types) {
    MAGISTER_CHECK(type == "full" || type == "shared", ExitCode::kData,
                   "{}: the kinds of indexers have \"{}\" (known: full, shared); use another model",
                   printable(source.path()), printable(type));
    chooses.push_back(type == "full");
  }
  MAGISTER_CHECK(static_cast<std::int64_t>(chooses.size()) == layers && chooses.front(), ExitCode::kData,
                 "{}: {} kinds of indexers for {} layers, or the first is shared (a layer could not know which keys it "
                 "sees); fetch the config again",
                 printable(source.path()), chooses.size(), layers);
  return chooses;
}

void read_glm(const HfConfig& source, ModelConfig& config) {
  if (!source.has("rms_norm_eps")) config.rms_norm_eps = 1e-5;
  read_common(source, config, true);
  config.latent->indexer->layer_chooses = choosing_layers(source, config.num_hidden_layers);
}

}  // namespace deepseek_v32

extern const Family kDeepseekV32Family, kGlmMoeDsaFamily;
const Family kDeepseekV32Family{.name = "deepseek_v32",
                                .model_type = "deepseek_v32",
                                .architecture = "DeepseekV32ForCausalLM",
                                .read_hf = deepseek_v32::read_v32,
                                .computes = kLatentComputes,
                                .classifier = "",
                                .hf_later_layers = "num_nextn_predict_layers",
                                .hf_defaults = deepseek_v32::kDefaults};
const Family kGlmMoeDsaFamily{.name = "glm_moe_dsa",
                              .model_type = "glm_moe_dsa",
                              .architecture = "GlmMoeDsaForCausalLM",
                              .read_hf = deepseek_v32::read_glm,
                              .computes = kLatentComputes,
                              .classifier = "",
                              .hf_later_layers = "num_nextn_predict_layers",
                              .hf_defaults = deepseek_v32::kGlmDefaults};

}  // namespace magister
