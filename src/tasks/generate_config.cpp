// The keys of `task: generate`, in the order in which the resolved experiment shows them.
// What depends on the model (token ids against the vocabulary, lengths against its positions) the task checks itself.
#include "magister/tasks/generate_config.h"

#include "magister/core/error.h"

namespace magister {
namespace {

std::uint64_t whole(ConfigNode& node, const char* key, std::int64_t fallback, std::int64_t least, std::int64_t most) {
  return static_cast<std::uint64_t>(node.integer(key, fallback, least, most));
}

SamplingParams read_sampling(ConfigNode& node) {
  SamplingParams sampling;
  sampling.temperature = node.number("temperature", 1.0, 0.0, 100.0);
  sampling.top_k = node.integer("top_k", 0, 0, 1 << 24);
  sampling.top_p = node.number("top_p", 1.0, 1e-9, 1.0);
  sampling.min_p = node.number("min_p", 0.0, 0.0, 1.0);
  sampling.repetition_penalty = node.number("repetition_penalty", 1.0, 0.01, 100.0);
  return sampling;
}

}  // namespace

GenerateConfig read_generate_config(ConfigNode& node, const ExperimentConfig& experiment) {
  GenerateConfig config;
  config.name = read_task_name(node, "answers");
  config.seed = experiment.seed;
  config.model = read_task_model(node, experiment);
  config.dataset = read_dataset(node);
  config.max_prompt_length = whole(node, "max_prompt_length", 2048, 1, 1 << 24);
  config.max_new_tokens = whole(node, "max_new_tokens", 256, 1, 1 << 20);
  config.n = whole(node, "n", 1, 1, 4096);
  config.sampling = read_sampling(node);
  if (config.n > 1 && config.sampling.temperature == 0.0) {
    node.reject("n", "{} texts a record at temperature 0 (all of them would be the same); raise the temperature or remove n",
                config.n);
  }
  if (node.has("stop")) {
    config.stop = node.texts("stop");
    for (const std::string& text : config.stop) {
      if (text.empty()) node.reject("stop", "an empty text (every text would end at once); remove it");
    }
  }
  if (node.has("stop_tokens") && node.is_list("stop_tokens")) {
    for (const std::int64_t id : node.integers("stop_tokens", 0, 1 << 30)) config.stop_tokens.push_back(static_cast<TokenId>(id));
  } else if (const auto id = node.optional_integer("stop_tokens", 0, 1 << 30)) {
    config.stop_tokens.push_back(static_cast<TokenId>(*id));
  }
  config.ignore_eos = node.boolean("ignore_eos", false);
  config.max_sequences = whole(node, "max_sequences", 32, 1, 4096);
  config.token_budget = whole(node, "token_budget", 512, 1, 1 << 20);
  config.share_prefixes = node.boolean("share_prefixes", true);
  return config;
}

}  // namespace magister
