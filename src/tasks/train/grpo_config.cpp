// In the order in which the resolved experiment shows the keys; see grpo_config.h.
#include "tasks/train/grpo_config.h"

#include <optional>

#include "magister/core/error.h"

namespace magister {
namespace {

std::uint64_t count_of(ConfigNode& node, const char* key, std::int64_t fallback, std::int64_t least,
                       std::int64_t most) {
  return static_cast<std::uint64_t>(node.integer(key, fallback, least, most));
}

// What the texts are drawn with.
void read_texts(ConfigNode& node, GrpoConfig& config, PolicyOptions& policy) {
  config.num_generations = count_of(node, "num_generations", 8, 2, 4096);
  config.max_new_tokens = count_of(node, "max_new_tokens", 512, 1, 1 << 20);
  SamplingParams& sampling = config.sampling;
  sampling.temperature = node.number("temperature", 1.0, 0, 100);
  if (sampling.temperature < 0.01) {
    node.reject("temperature",
                "{} (all texts of a prompt would be the same, and none better than the others); choose 0.01 or more",
                sampling.temperature);
  }
  sampling.top_k = node.integer("top_k", 0, 0, 1 << 24);
  sampling.top_p = node.number("top_p", 1.0, 1e-9, 1.0);
  sampling.min_p = node.number("min_p", 0.0, 0.0, 1.0);
  sampling.repetition_penalty = node.number("repetition_penalty", 1.0, 0.01, 100.0);
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
  policy.epsilon = node.number("epsilon", 0.2, 0, 1);
  policy.epsilon_high = node.number("epsilon_high", policy.epsilon, 0, 1e6);
  const std::string scale = node.choice("scale_rewards", {"group", "batch", "none"}, "group");
  config.scale = scale == "batch" ? RewardScale::kBatch : scale == "none" ? RewardScale::kNone : RewardScale::kGroup;
  config.num_iterations = count_of(node, "num_iterations", 1, 1, 1024);
}

// A folder, or what an earlier task of objective reward writes.
void read_reward_model(ConfigNode& node, const ExperimentConfig& experiment, RewardConfig& reward) {
  ConfigNode alone =
      node.only_if(reward.verifier.empty(), "is given beside a verifier (a text has one reward); remove one of them");
  std::optional<ConfigNode> section = alone.optional_section("model");
  if (!section) return;
  reward.model = read_reward_model(*section, experiment);
}

void read_reward(ConfigNode node, bool applies, const ExperimentConfig& experiment, RewardConfig& reward) {
  const std::string verifier = node.choice("verifier", {"none", "exact", "math", "regex"}, "none");
  reward.verifier = verifier == "none" ? "" : verifier;
  reward.rule = read_verifier_config(node, verifier);
  read_reward_model(node, experiment, reward);
  if (node.has("judge")) {
    node.reject(
        "judge",
        "a judge's verdicts as rewards are not there yet (its model would have to answer between two steps); remove "
        "it, and name a verifier");
  }
  if (applies && reward.verifier.empty() && !reward.model && !node.has("judge"))
    node.reject("",
                "no reward (nothing says which texts are better); name a verifier - exact, math or regex - or a model");
  node.also_called("model", {"reward_model", "reward_model_path"});
}

}  // namespace

GrpoConfig read_grpo(ConfigNode& task, bool applies, const ExperimentConfig& experiment, PolicyOptions& policy) {
  GrpoConfig config;
  ConfigNode of_grpo = task.only_if(applies, "is given with another objective; set objective: grpo, or remove it");
  ConfigNode node = of_grpo.section("grpo");
  read_texts(node, config, policy);
  read_loss(node, config, policy);
  config.log_completions = node.boolean("log_completions", false);
  read_reward(node.section("reward"), applies, experiment, config.reward);
  node.also_called("num_generations", {"n", "group_size", "num_return_sequences"});
  node.also_called("max_new_tokens", {"max_completion_length", "max_tokens", "max_completion_tokens"});
  node.also_called("epsilon", {"epsilon_low", "clip_range", "cliprange"});
  node.also_called("beta", {"kl_coef", "kl_coefficient"});
  node.also_called("num_iterations", {"ppo_epochs", "mu"});
  return config;
}

}  // namespace magister
