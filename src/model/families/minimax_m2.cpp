// MiniMax-M2: Llama's layers with norms on all heads of q and of k together, experts in every layer, and a router that
// takes sigmoids, with a bias for the choice alone. A part of each head is rotated.
// Source: transformers MiniMaxM2Config, MiniMaxM2Attention and MiniMaxM2TopKRouter.
#include "magister/core/error.h"
#include "model/families/expert_fields.h"

namespace magister {
namespace minimax_m2 {

constexpr const char* kComputes[] = {"num_experts", "num_local_experts", "partial_rotary_factor", "use_qk_norm"};
constexpr std::pair<const char*, const char*> kRenames[] = {
    {"mlp.gate.weight", "block_sparse_moe.gate.weight"},
    {"mlp.gate.e_score_correction_bias", "block_sparse_moe.e_score_correction_bias"},
    {"mlp.experts.{}.gate_proj.weight", "block_sparse_moe.experts.{}.w1.weight"},
    {"mlp.experts.{}.down_proj.weight", "block_sparse_moe.experts.{}.w2.weight"},
    {"mlp.experts.{}.up_proj.weight", "block_sparse_moe.experts.{}.w3.weight"}};
constexpr std::pair<const char*, std::int64_t> kDefaults[] = {
    {"num_key_value_heads", 8}, {"head_dim", 128}, {"num_local_experts", 256}, {"num_experts_per_tok", 8}};

void read_hf(const HfConfig& source, ModelConfig& config) {
  config.qk_norm = config.qk_norm_of_all_heads = true;
  // Published files say rotary_dim; transformers prefers it to partial_rotary_factor where both are outside.
  const std::int64_t rotary = source.integer_or("rotary_dim", 0, 2, config.head_dim);
  if (rotary > 0 && !source.has("partial_rotary_factor") && !source.rope_member("partial_rotary_factor"))
    config.rotary_dim = rotary == config.head_dim ? 0 : rotary;
  read_experts(source, config, "intermediate_size", 256, 8);
  config.router.scores = RouterConfig::Scores::kSigmoid;
  config.router.choice_bias = true;
  config.norm_topk_prob = true;
  if (source.number_or("router_jitter_noise", 0.0, 0.0, 1.0) > 0) config.untrained_key = "router_jitter_noise";
}

}  // namespace minimax_m2

extern const Family kMiniMaxM2Family;
const Family kMiniMaxM2Family{.name = "minimax_m2",
                              .model_type = "minimax_m2",
                              .architecture = "MiniMaxM2ForCausalLM",
                              .read_hf = minimax_m2::read_hf,
                              .computes = minimax_m2::kComputes,
                              .hf_renames = minimax_m2::kRenames,
                              .default_rope_theta = 5e6,
                              .classifier = "",
                              .hf_defaults = minimax_m2::kDefaults};

}  // namespace magister
