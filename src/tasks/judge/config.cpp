// The keys of `task: judge`, in the order in which the resolved experiment shows them.
#include "tasks/judge/config.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "magister/core/error.h"
#include "tasks/judge/templates.h"

namespace magister {
namespace {

JudgePromptConfig read_prompt(ConfigNode& node, JudgeMode mode) {
  JudgePromptConfig prompt{node.optional_text("named").value_or(""), node.optional_text("system").value_or(""),
                           node.optional_text("user").value_or("")};
  std::vector<std::string> names;
  for (const JudgeTemplate& ready : judge_templates(mode)) names.emplace_back(ready.name);
  if (!prompt.named.empty() && std::find(names.begin(), names.end(), prompt.named) == names.end()) {
    node.reject(
        "named",
        "\"{}\" is not a prompt of this mode (known: {}); choose one of them or write your own with prompt.user",
        printable(prompt.named, 40), fmt::join(names, ", "));
    prompt.named.clear();
  }
  return prompt;
}

template <typename Choice>
Choice chosen(ConfigNode& node, const char* key, const std::vector<std::string>& names) {
  const std::string name = node.choice(key, names, names.front());
  return static_cast<Choice>(std::find(names.begin(), names.end(), name) - names.begin());
}

void read_prompts(ConfigNode& node, JudgeConfig& config) {
  config.prompts.clear();
  for (ConfigNode& one : node.optional_sections("prompts")) config.prompts.push_back(read_prompt(one, config.mode));
  if (config.prompts.size() > 16)
    node.reject("prompts", "{} prompts (every text is judged by each); give at most 16", config.prompts.size());
  ConfigNode alone =
      node.only_if(!node.has("prompts"), "is given beside `prompts` (one or several, not both); remove one of them");
  ConfigNode prompt = alone.section("prompt");
  const JudgePromptConfig single = read_prompt(prompt, config.mode);
  if (config.prompts.empty() || !node.has("prompts")) config.prompts = {single};
}

void read_method(ConfigNode& node, JudgeConfig& config) {
  config.method = chosen<JudgeMethod>(node, "method", {"prefill", "decode"});
  const bool decode = config.method == JudgeMethod::kDecode;
  ConfigNode reply =
      node.only_if(decode, "is given without `method: decode` (no reply is written); set the method or remove it");
  const std::int64_t max_new_tokens = reply.integer("max_new_tokens", 256, 1, 1 << 16);
  config.max_new_tokens = decode ? static_cast<std::uint64_t>(max_new_tokens) : 0;
  config.read = chosen<JudgeRead>(reply, "read", {"score", "word", "substring"});
  if (config.read == JudgeRead::kSubstring && config.mode != JudgeMode::kReference) {
    node.reject(
        "read",
        "substring with another mode than reference (letters and digits occur in any reply); use word or score");
  }
}

}  // namespace

JudgeConfig read_judge_config(ConfigNode& node, const ExperimentConfig& experiment) {
  JudgeConfig config;
  config.name = read_task_name(node, "verdicts");
  config.model = read_task_model(node, experiment);
  config.dataset = read_dataset(node, /*whole_records=*/true);
  config.answers = node.optional_text("answers").value_or("");
  config.mode = chosen<JudgeMode>(node, "mode", {"reference", "simpleqa", "rubric", "pairwise", "choice"});
  read_prompts(node, config);
  read_method(node, config);
  config.combine = chosen<JudgeCombine>(node, "combine", {"mean_log_odds", "majority", "unanimous"});
  config.panel = node.optional_texts("panel");
  ConfigNode fields = node.section("fields");
  for (const char* name : {"question", "answer", "references", "answer_a", "answer_b", "options", "rubric"}) {
    if (const auto other = fields.optional_text(name)) config.fields[name] = *other;
  }
  config.label_field = node.optional_text("label").value_or("");
  config.num_classes = static_cast<std::uint64_t>(node.integer("classes", config.mode == JudgeMode::kChoice ? 4 : 5, 2,
                                                               config.mode == JudgeMode::kChoice ? 26 : 10));
  config.low_mass = node.number("low_mass", 0.5, 0.0, 1.0);
  config.use_chat_template = node.choice("chat_template", {"auto", "off"}, "auto") == "auto";
  config.length_place = node.place("max_prompt_length");
  config.max_prompt_length = static_cast<std::uint64_t>(node.integer("max_prompt_length", 4096, 1, 1 << 24));
  config.max_sequences = static_cast<std::uint64_t>(node.integer_or_auto("max_sequences", 1, 4096).value_or(0));
  config.token_budget = static_cast<std::uint64_t>(node.integer_or_auto("token_budget", 1, 1 << 20).value_or(0));
  config.share_prefixes = node.boolean("share_prefixes", true);
  node.also_called("max_new_tokens", {"max_tokens", "max_completion_tokens"});
  node.also_called("max_prompt_length", {"max_model_len", "max_length", "max_input_length", "max_seq_length"});
  node.also_called("max_sequences", {"max_num_seqs", "batch_size", "per_device_batch_size"});
  node.also_called("token_budget", {"max_num_batched_tokens"});
  node.also_called("share_prefixes", {"enable_prefix_caching"});
  node.also_called("prompt", {"system", "user", "prompt_template", "template"});
  return config;
}

}  // namespace magister
