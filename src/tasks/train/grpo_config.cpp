// In the order in which the resolved experiment shows the keys; see grpo_config.h.
#include "tasks/train/grpo_config.h"

#include <optional>

#include "magister/core/error.h"
#include "magister/runtime/sampling_config.h"

namespace magister {
namespace {

// What the texts are drawn with.
void read_texts(ConfigNode& node, GrpoConfig& config, PolicyOptions& policy) {
  config.num_generations = node.count("num_generations", 8, 2, 4096);
  config.text_length = LengthKey(node, "max_new_tokens", 512, 1, 1 << 20);
  config.max_new_tokens = config.text_length.tokens();
  const SamplingParams& sampling = config.sampling = read_sampling(node);
  if (sampling.temperature < 0.01) {
    node.reject("temperature",
                "{} (all texts of a prompt would be the same, and none better than the others); choose 0.01 or more",
                sampling.temperature);
  }
  policy.temperature = sampling.temperature;
  if (sampling.top_k == 1)
    node.reject("top_k", "1 (all texts of a prompt would be the same); choose 0 for all tokens, or more");
}

void read_loss(ConfigNode& node, GrpoConfig& config, PolicyOptions& policy) {
  const std::string loss = node.choice("loss_type", {"dapo", "grpo", "bnpo", "dr_grpo"}, "dapo");
  config.reduction = loss == "grpo"      ? PolicyReduction::kGrpo
                     : loss == "bnpo"    ? PolicyReduction::kBnpo
                     : loss == "dr_grpo" ? PolicyReduction::kDrGrpo
                                         : PolicyReduction::kDapo;
  policy.beta = node.number("beta", 0.0, 0, 1e6);
  policy.use_bias_correction_kl = node.boolean("use_bias_correction_kl", true);
  policy.epsilon = node.number("epsilon", 0.2, 0, 1);
  policy.epsilon_high = node.number("epsilon_high", policy.epsilon, 0, 1e6);
  const std::string scale = node.choice("scale_rewards", {"group", "batch", "none"}, "group");
  config.scale = scale == "batch" ? RewardScale::kBatch : scale == "none" ? RewardScale::kNone : RewardScale::kGroup;
  config.num_iterations = node.count("num_iterations", 1, 1, 1024);
}

}  // namespace

GrpoConfig read_grpo(ConfigNode& task, bool applies, const ExperimentConfig& experiment, PolicyOptions& policy) {
  GrpoConfig config;
  ConfigNode of_grpo = task.only_if(applies, "is given with another objective; set objective: grpo, or remove it");
  ConfigNode node = of_grpo.section("grpo");
  read_texts(node, config, policy);
  read_loss(node, config, policy);
  config.log_completions = node.boolean("log_completions", false);
  config.reward = read_reward(node.section("reward"), applies, experiment);
  node.also_called("num_generations", {"n", "group_size", "num_return_sequences"});
  node.also_called("max_new_tokens", {"max_completion_length", "max_tokens", "max_completion_tokens"});
  node.also_called("epsilon", {"epsilon_low", "clip_range", "cliprange"});
  node.also_called("beta", {"kl_coef", "kl_coefficient"});
  node.also_called("num_iterations", {"ppo_epochs", "mu"});
  return config;
}

}  // namespace magister
