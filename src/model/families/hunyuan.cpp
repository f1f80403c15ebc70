// HunYuan (dense): Llama's layers with an RMS norm over each head of q and k after the rotary embedding. Files that say
// "dynamic" with an alpha stretch the rotary base once, whatever a sequence's length.
// Source: transformers HunYuanDenseV1Config, HunYuanDenseV1Attention and HunYuanDenseV1RotaryEmbedding.
#include <cmath>

#include "magister/core/error.h"
#include "model/families/family.h"
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

}  // namespace hunyuan

extern const Family kHunYuanFamily;
const Family kHunYuanFamily{.name = "hunyuan_v1_dense",
                            .model_type = "hunyuan_v1_dense",
                            .architecture = "HunYuanDenseV1ForCausalLM",
                            .read_hf = hunyuan::read_hf,
                            .computes = hunyuan::kComputes,
                            .hf_renames = hunyuan::kRenames};

}  // namespace magister
