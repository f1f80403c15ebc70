// The keys of `task: rollout`, in the order in which the resolved experiment shows them.
#include "tasks/rollout/config.h"

#include "magister/core/error.h"
#include "magister/runtime/sampling_config.h"

namespace magister {
namespace {

// Where roll-ins are cut, and how the continuations are written.
void read_texts(ConfigNode& node, RolloutConfig& config) {
  config.roll_in_greedy = node.choice("roll_in", {"greedy", "sampled"}, "greedy") == "greedy";
  config.cuts = node.count("cuts", 4, 1, 4096);
  config.first_cut = node.count("first_cut", 1, 0, 1 << 20);
  const std::string kind = node.choice("continuations", {"greedy_and_sampled", "sampled"}, "greedy_and_sampled");
  config.first_greedy = kind != "sampled";
  config.n = node.count("n", 2, 1, 4096);
  if (config.cuts * config.n > 4096) {
    node.reject("n", "{} texts after each of {} cuts (a record has at most 4096); lower one of them", config.n,
                config.cuts);
  }
  config.continue_guided = node.choice("continue_with", {"policy", "reference"}, "policy") == "policy";
  config.sampling = read_sampling(node);
  const std::uint64_t drawn = config.n - (config.first_greedy ? 1 : 0);
  if (config.sampling.temperature == 0.0 && (drawn > 1 || (drawn == 1 && config.first_greedy))) {
    node.reject("temperature", "0 with {} texts after a cut (all of them would be the same); raise it, or set n: 1",
                config.n);
  }
}

}  // namespace

RolloutConfig read_rollout_config(ConfigNode& node, const ExperimentConfig& experiment) {
  RolloutConfig config;
  config.name = read_task_name(node, "rollouts");
  config.seed = experiment.seed;
  config.model = read_task_model(node, experiment);
  config.dataset = read_dataset(node);
  static_cast<TextLengths&>(config) = read_text_lengths(node);
  read_texts(node, config);
  config.guide = read_guide(node, experiment);
  ConfigNode reward = node.section("reward");
  config.reward = read_reward(reward, true, experiment);
  config.scale = reward.number("scale", 1.0, -1e6, 1e6);
  ConfigNode preference = node.section("preference");
  config.beta = preference.number("beta", 1.0, 0, 1e6);
  config.stop = node.optional_texts("stop");
  config.ignore_eos = node.boolean("ignore_eos", false);
  static_cast<BatchKeys&>(config) = read_batch_keys(node, 512);
  if (!config.dataset.tokens_field.empty())
    node.reject("dataset", "tokens (rewards are read from texts); name a field with text or messages");
  if (config.reward.reads_fields()) config.dataset.whole_record = true;
  declare_engine_names(node);
  node.also_called("cuts", {"samples_per_example", "num_cuts", "cut_points"});
  node.also_called("n", {"num_generations", "num_return_sequences", "num_samples"});
  node.also_called("reward", {"score", "reward_model", "verifier"});
  return config;
}

}  // namespace magister
