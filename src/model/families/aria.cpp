// Aria's text decoder: Llama's attention, experts in every layer with two shared ones; the softmax is over the chosen
// logits. Files hold the experts of a layer as one tensor, inputs first.
// Source: transformers AriaTextConfig, AriaTextTopKRouter, AriaExperts and AriaSharedExpertsMLP.
#include "magister/core/error.h"
#include "model/families/expert_fields.h"
#include "model/families/needed_value.h"

namespace magister {
namespace aria {

constexpr const char* kComputes[] = {"num_experts", "num_local_experts"};
constexpr std::pair<const char*, const char*> kKeys[] = {{"num_experts", "moe_num_experts"},
                                                         {"num_experts_per_tok", "moe_topk"}};
constexpr std::pair<const char*, const char*> kRenames[] = {{"mlp.gate.weight", "mlp.router.weight"},
                                                            {"mlp.experts.gate_up_proj", "mlp.experts.fc1.weight"},
                                                            {"mlp.experts.down_proj", "mlp.experts.fc2.weight"}};
constexpr std::pair<const char*, std::int64_t> kDefaults[] = {{"intermediate_size", 4096},
                                                              {"moe_num_shared_experts", 2}};

void read_hf(const HfConfig& source, ModelConfig& config) {
  need_flag(source, "mlp_bias", false, false);
  MAGISTER_CHECK(config.activation == Activation::kSilu, ExitCode::kData,
                 "{}: hidden_act is not silu (transformers takes it for the shared experts alone, which is not "
                 "supported); use another model",
                 printable(source.path()));
  config.qkv_bias = config.o_bias = source.boolean_or("attention_bias", false);
  read_experts(source, config, "intermediate_size", 8, 2);
  config.num_shared_experts = source.integer("moe_num_shared_experts", 1, kMostExperts);
  config.norm_topk_prob = config.fused_experts = config.fused_experts_in_halves = true;
}

}  // namespace aria

extern const Family kAriaFamily;
const Family kAriaFamily{.name = "aria",
                         .model_type = "aria_text",
                         .architecture = "AriaTextForCausalLM",
                         .read_hf = aria::read_hf,
                         .computes = aria::kComputes,
                         .hf_renames = aria::kRenames,
                         .classifier = "",
                         .hf_keys = aria::kKeys,
                         .hf_defaults = aria::kDefaults};

}  // namespace magister
