// HunYuan: Llama's layers with an RMS norm over each head of q and k after the rotary embedding. Files that say
// "dynamic" with an alpha stretch the rotary base once, whatever a sequence's length.
// The mixture has one shared expert in every layer.
// Source: transformers HunYuanMoEV1Config, HunYuanMoEV1Gate, HunYuanDenseV1Config, HunYuanDenseV1Attention and
// HunYuanDenseV1RotaryEmbedding.
#include <algorithm>
#include <cmath>

#include "magister/core/error.h"
#include "model/families/expert_fields.h"
#include "model/families/needed_value.h"

namespace magister {
namespace hunyuan {

// Beside an alpha the other members of the rotary embedding do nothing.
constexpr const char* kComputes[] = {"use_qk_norm",
                                     "rope_parameters.alpha",
                                     "rope_parameters.beta_fast",
                                     "rope_parameters.beta_slow",
                                     "rope_parameters.mscale",
                                     "rope_parameters.mscale_all_dim"};
constexpr std::pair<const char*, const char*> kRenames[] = {
    {"self_attn.q_norm.weight", "self_attn.query_layernorm.weight"},
    {"self_attn.k_norm.weight", "self_attn.key_layernorm.weight"}};

void read_hf(const HfConfig& source, ModelConfig& config) {
  need_flag(source, "use_qk_norm", true, true);
  need_flag(source, "use_cla", false, false);
  need_flag(source, "mlp_bias", false, false);
  if (!source.has("rms_norm_eps")) config.rms_norm_eps = 1e-5;
  config.qk_norm = config.qk_norm_after_rope = true;
  config.qkv_bias = config.o_bias = source.boolean_or("attention_bias", false);
  const auto alpha = source.rope_member("alpha");
  if (!alpha) return;
  MAGISTER_CHECK(config.rope.kind == RopeConfig::Kind::kDynamic && config.head_dim > 2, ExitCode::kData,
                 "{}: the rotary embedding has an alpha, but is not of the type dynamic (programs disagree whether it "
                 "counts then); fetch the config again",
                 printable(source.path()));
  const double theta = config.rope.theta, E = static_cast<double>(config.head_dim);
  config.rope = {};
  config.rope.theta = theta * std::pow(*alpha, E / (E - 2.0));
}

constexpr const char* kMoeComputes[] = {"use_qk_norm",
                                        "rope_parameters.alpha",
                                        "rope_parameters.beta_fast",
                                        "rope_parameters.beta_slow",
                                        "rope_parameters.mscale",
                                        "rope_parameters.mscale_all_dim",
                                        "num_experts",
                                        "num_local_experts"};
constexpr std::pair<const char*, const char*> kMoeRenames[] = {
    {"self_attn.q_norm.weight", "self_attn.query_layernorm.weight"},
    {"self_attn.k_norm.weight", "self_attn.key_layernorm.weight"},
    {"mlp.gate.weight", "mlp.gate.wg.weight"},
    {"mlp.shared_experts.gate_proj.weight", "mlp.shared_mlp.gate_proj.weight"},
    {"mlp.shared_experts.up_proj.weight", "mlp.shared_mlp.up_proj.weight"},
    {"mlp.shared_experts.down_proj.weight", "mlp.shared_mlp.down_proj.weight"}};

// A number, or a list with one for each layer, which must all be the same.
std::int64_t alike(const HfConfig& source, const char* key, std::int64_t absent) {
  if (!source.is_list(key)) return source.integer_or(key, absent, 1, 1 << 22);
  const std::vector<std::int64_t> all = source.integers(key, 1, 1 << 22);
  MAGISTER_CHECK(!all.empty() && std::ranges::all_of(all, [&](std::int64_t one) { return one == all.front(); }),
                 ExitCode::kData,
                 "{}: {} differs by layer (layers of several sizes are not supported); use another model",
                 printable(source.path()), key);
  return all.front();
}

void read_moe(const HfConfig& source, ModelConfig& config) {
  read_hf(source, config);
  config.num_experts = alike(source, "num_experts", 1);
  config.num_experts_per_tok = alike(source, "moe_topk", 1);
  config.moe_intermediate_size = config.intermediate_size;
  // transformers takes intermediate_size for experts, and one shared expert, whatever these keys say.
  for (const auto& [key, computed] : {std::pair{"moe_intermediate_size", config.intermediate_size},
                                      std::pair{"num_shared_expert", std::int64_t{1}}}) {
    const std::int64_t given = alike(source, key, computed);
    MAGISTER_CHECK(given == computed, ExitCode::kData,
                   "{}: {} is {} (transformers computes {}, whatever it says); use another model",
                   printable(source.path()), key, given, computed);
  }
  config.num_shared_experts = 1;
  config.norm_topk_prob = true;
  if (source.boolean_or("output_router_logits", false)) config.untrained_key = "output_router_logits";
}

}  // namespace hunyuan

extern const Family kHunYuanFamily, kHunYuanMoeFamily;
const Family kHunYuanMoeFamily{.name = "hunyuan_v1_moe",
                               .model_type = "hunyuan_v1_moe",
                               .architecture = "HunYuanMoEV1ForCausalLM",
                               .read_hf = hunyuan::read_moe,
                               .computes = hunyuan::kMoeComputes,
                               .hf_renames = hunyuan::kMoeRenames};
const Family kHunYuanFamily{.name = "hunyuan_v1_dense",
                            .model_type = "hunyuan_v1_dense",
                            .architecture = "HunYuanDenseV1ForCausalLM",
                            .read_hf = hunyuan::read_hf,
                            .computes = hunyuan::kComputes,
                            .hf_renames = hunyuan::kRenames};

}  // namespace magister
