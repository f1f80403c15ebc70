// NanoChat: RMS norms without weights, also of the embeddings and of each head of q and k after their rotation, which
// goes the other way; an MLP without a gate, with the square of ReLU; capped logits.
// Source: transformers NanoChatConfig, NanoChatAttention and NanoChatModel.
#include "model/families/family.h"

namespace magister {
namespace nanochat {

constexpr const char* kComputes[] = {"relu2", "final_logit_softcapping", "yarn"};
constexpr std::pair<const char*, const char*> kRenames[] = {{"mlp.up_proj.weight", "mlp.fc1.weight"},
                                                            {"mlp.down_proj.weight", "mlp.fc2.weight"}};

void read_hf(const HfConfig& source, ModelConfig& config) {
  config.weightless_norms = config.embedding_norm = config.qk_l2_norm = true;
  config.rope.turns_back = true;
  config.qkv_bias = config.o_bias = source.boolean_or("attention_bias", false);
  config.gated_mlp = false;
  if (!source.has("hidden_act")) config.activation = Activation::kRelu2;
  if (!source.is_null("final_logit_softcapping"))
    config.final_logit_softcapping = source.number_or("final_logit_softcapping", 15.0, 1e-3, 1e6);
}

}  // namespace nanochat

extern const Family kNanoChatFamily;
const Family kNanoChatFamily{.name = "nanochat",
                             .model_type = "nanochat",
                             .architecture = "NanoChatForCausalLM",
                             .read_hf = nanochat::read_hf,
                             .computes = nanochat::kComputes,
                             .hf_renames = nanochat::kRenames,
                             .classifier = ""};

}  // namespace magister
