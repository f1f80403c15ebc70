// EXAONE 4: norms only on the output of blocks, and on each head of q and k. In models with a window, only the layers
// with the window have a rotary embedding.
// K-EXAONE (exaone_moe): the same attention, with norms on the input of blocks instead, a dense layer first, and then
// DeepSeek-V3's router.
// Source: transformers Exaone4Config, Exaone4Attention, Exaone4DecoderLayer, ExaoneMoeConfig and ExaoneMoeDecoderLayer.
#include <algorithm>

#include "magister/core/error.h"
#include "model/families/expert_fields.h"

namespace magister {
namespace exaone4 {

constexpr const char* kComputes[] = {"yarn"};

void read_hf(const HfConfig& source, ModelConfig& config) {
  if (source.is_absent("num_key_value_heads")) config.num_key_value_heads = 32;
  if (!source.has("rms_norm_eps")) config.rms_norm_eps = 1e-5;
  config.norm_placement = NormPlacement::kOutput;
  config.qk_norm = true;
  const std::int64_t absent = source.is_null("sliding_window") ? 0 : 4096;
  config.sliding_window = source.integer_or("sliding_window", absent, 1, INT32_MAX);
  if (source.has("layer_types")) {
    config.layer_is_sliding = source.sliding_layers({});
  } else if (config.sliding_window > 0) {
    MAGISTER_CHECK(!source.is_text("sliding_window_pattern"), ExitCode::kData,
                   "{}: sliding_window_pattern is a text (transformers reads only a number without layer_types); write "
                   "layer_types",
                   printable(source.path()));
    config.layer_is_sliding =
        all_but_every(source.integer_or("sliding_window_pattern", 4, 1, 1 << 12), config.num_hidden_layers);
  }
  // Without a window, all layers have a rotary embedding; with one, only those that slide.
  if (config.sliding_window > 0) config.layer_has_rope = config.layer_is_sliding;
  const bool any = std::ranges::find(config.layer_is_sliding, true) != config.layer_is_sliding.end();
  MAGISTER_CHECK(!any || config.sliding_window > 0, ExitCode::kData,
                 "{}: layer_types has sliding_attention, but sliding_window is null (the layers cannot be computed); "
                 "fetch the config again",
                 printable(source.path()));
  if (!any) {
    config.sliding_window = 0;
    config.layer_is_sliding.clear();
  }
}

constexpr const char* kMoeComputes[] = {"yarn", "num_experts", "num_local_experts", "n_routed_experts"};
constexpr std::pair<const char*, const char*> kMoeKeys[] = {{"n_routed_experts", "num_experts"},
                                                            {"n_shared_experts", "num_shared_experts"}};
constexpr std::pair<const char*, const char*> kMoeRenames[] = {
    {"mlp.gate.e_score_correction_bias", "mlp.e_score_correction_bias"}};
constexpr std::pair<const char*, std::int64_t> kMoeDefaults[] = {
    {"n_routed_experts", 64}, {"n_shared_experts", 1}, {"num_experts_per_tok", 8}, {"moe_intermediate_size", 1024}};

void read_moe(const HfConfig& source, ModelConfig& config) {
  read_hf(source, config);
  config.norm_placement = NormPlacement::kInput;
  read_sigmoid_router(source, config);
  config.norm_topk_prob = source.boolean_or("norm_topk_prob", true);
  config.router.scaling = source.number_or("routed_scaling_factor", 2.5, 1e-6, 1e6);
  const std::int64_t dense = source.integer_or("first_k_dense_replace", 1, 0, config.num_hidden_layers);
  config.layer_is_sparse = sparse_layers(source, dense, config.num_hidden_layers);
}

}  // namespace exaone4

extern const Family kExaone4Family, kExaoneMoeFamily;
const Family kExaoneMoeFamily{.name = "exaone_moe",
                              .model_type = "exaone_moe",
                              .architecture = "ExaoneMoeForCausalLM",
                              .read_hf = exaone4::read_moe,
                              .computes = exaone4::kMoeComputes,
                              .hf_renames = exaone4::kMoeRenames,
                              .classifier = "",
                              .hf_keys = exaone4::kMoeKeys,
                              .hf_defaults = exaone4::kMoeDefaults};
const Family kExaone4Family{.name = "exaone4",
                            .model_type = "exaone4",
                            .architecture = "Exaone4ForCausalLM",
                            .read_hf = exaone4::read_hf,
                            .computes = exaone4::kComputes};

}  // namespace magister
