// PhiMoE (Phi-3.5-MoE): Mixtral's layers with layer norms and biases, a head with a bias, and the sparse mixer as
// router.
// In training transformers draws the two experts at random. Here they are those that are chosen outside of training,
// with the gradients of their shares.
// Texts beyond the original positions are not computed: there transformers 5.23 takes the short rotary factors, and the
// authors' own code the long ones.
// Source: transformers PhimoeConfig, PhimoeRotaryEmbedding, sparsemixer and PhimoeTopKRouter.
#include "magister/core/error.h"
#include "model/families/expert_fields.h"

namespace magister {
namespace phimoe {

constexpr const char* kComputes[] = {"num_local_experts", "num_experts", "longrope", "rope_parameters.short_mscale",
                                     "rope_parameters.long_mscale"};
constexpr std::pair<const char*, const char*> kRenames[] = {
    {"mlp.gate.weight", "block_sparse_moe.gate.weight"},
    {"mlp.experts.{}.gate_proj.weight", "block_sparse_moe.experts.{}.w1.weight"},
    {"mlp.experts.{}.down_proj.weight", "block_sparse_moe.experts.{}.w2.weight"},
    {"mlp.experts.{}.up_proj.weight", "block_sparse_moe.experts.{}.w3.weight"}};
constexpr std::pair<const char*, std::int64_t> kDefaults[] = {{"num_key_value_heads", 8}, {"intermediate_size", 6400}};

void read_hf(const HfConfig& source, ModelConfig& config) {
  if (!source.has("rms_norm_eps")) config.rms_norm_eps = 1e-5;
  config.norm_kind = NormKind::kLayer;
  config.norm_bias = true;
  config.qkv_bias = config.o_bias = source.boolean_or("attention_bias", false);
  config.head_bias = source.boolean_or("lm_head_bias", false);
  config.sliding_window = source.integer_or("sliding_window", 0, 1, INT32_MAX);
  read_experts(source, config, "intermediate_size", 16, 2);
  MAGISTER_CHECK(config.num_experts_per_tok == 2 && config.num_experts > 2, ExitCode::kData,
                 "{}: num_experts_per_tok is {} of {} experts (the sparse mixer chooses two of several); use another "
                 "model",
                 printable(source.path()), config.num_experts_per_tok, config.num_experts);
  config.router.scores = RouterConfig::Scores::kSparseMixer;
  config.router.margin = source.number_or("router_jitter_noise", 0.01, 0.0, 1e3);
  if (source.number_or("input_jitter_noise", 0.0, 0.0, 1.0) > 0) config.untrained_key = "input_jitter_noise";
  if (config.rope.kind == RopeConfig::Kind::kDefault) return;
  const auto factor = source.rope_member("short_mscale");
  MAGISTER_CHECK(config.rope.kind == RopeConfig::Kind::kLongRope && factor, ExitCode::kData,
                 "{}: the rotary embedding is neither the default nor longrope with short_mscale (no such PhiMoE is "
                 "computed); use another model",
                 printable(source.path()));
  config.rope.attention_factor = *factor;
  config.max_position_embeddings = config.rope.original_max_position_embeddings;
}

}  // namespace phimoe

extern const Family kPhiMoeFamily;
const Family kPhiMoeFamily{.name = "phimoe",
                           .model_type = "phimoe",
                           .architecture = "PhimoeForCausalLM",
                           .read_hf = phimoe::read_hf,
                           .computes = phimoe::kComputes,
                           .hf_renames = phimoe::kRenames,
                           .default_rope_theta = 1e6,
                           .hf_defaults = phimoe::kDefaults};

}  // namespace magister
