// In the order in which the resolved experiment shows the keys; see grpo_config.h.
#include "tasks/train/grpo_config.h"

#include <optional>

#include "magister/io/checkpoint/model_path.h"

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

void read_reward(ConfigNode node, bool applies, RewardConfig& reward) {
  const std::string verifier = node.choice("verifier", {"none", "exact", "math", "regex"}, "none");
  reward.verifier = verifier == "none" ? "" : verifier;
  reward.answer_field = node.optional_text("answer").value_or("");
  if (reward.answer_field.empty() && (verifier == "exact" || verifier == "math")) reward.answer_field = "answer";
  ConfigNode of_regex = node.only_if(
      verifier == "regex", "is given without `verifier: regex` (only that searches for it); set it, or remove it");
  reward.pattern = of_regex.optional_text("pattern").value_or("");
  if (verifier == "regex" && reward.pattern.empty())
    node.reject("pattern", "no expression (nothing says which texts are right); write for example pattern: \"[0-9]+\"");
  reward.model = find_model(node.optional_text("model").value_or(""));
  if (!reward.model.empty() && (!reward.verifier.empty() || !reward.answer_field.empty()))
    node.reject("model", "a reward model beside a verifier or an answer (a text has one reward); remove one of them");
  if (node.has("judge")) {
    node.reject(
        "judge",
        "a judge's verdicts as rewards are not there yet (its model would have to answer between two steps); remove "
        "it, and name a verifier");
  }
  if (applies && reward.verifier.empty() && reward.model.empty() && !node.has("judge"))
    node.reject("",
                "no reward (nothing says which texts are better); name a verifier - exact, math or regex - or a model");
  reward.pattern_place = node.place("pattern");
  node.also_called("model", {"reward_model", "reward_model_path", "path"});
  node.also_called("answer", {"ground_truth", "solution", "label"});
  node.also_called("verifier", {"reward_funcs", "reward_function", "function"});
}

}  // namespace

GrpoConfig read_grpo(ConfigNode& task, bool applies, PolicyOptions& policy) {
  GrpoConfig config;
  ConfigNode of_grpo = task.only_if(applies, "is given with another objective; set objective: grpo, or remove it");
  ConfigNode node = of_grpo.section("grpo");
  read_texts(node, config, policy);
  read_loss(node, config, policy);
  config.log_completions = node.boolean("log_completions", false);
  read_reward(node.section("reward"), applies, config.reward);
  node.also_called("num_generations", {"n", "group_size", "num_return_sequences"});
  node.also_called("max_new_tokens", {"max_completion_length", "max_tokens", "max_completion_tokens"});
  node.also_called("epsilon", {"epsilon_low", "clip_range", "cliprange"});
  node.also_called("beta", {"kl_coef", "kl_coefficient"});
  node.also_called("num_iterations", {"ppo_epochs", "mu"});
  return config;
}

}  // namespace magister
