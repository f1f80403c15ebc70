// The keys of `task: judge`, in the order in which the resolved experiment shows them.
#include "magister/tasks/judge_config.h"

#include <algorithm>

#include "magister/core/error.h"

namespace magister {

JudgeConfig read_judge_config(ConfigNode& node, const ExperimentConfig& experiment) {
  JudgeConfig config;
  config.name = read_task_name(node, "verdicts");
  config.model = read_task_model(node, experiment);
  config.dataset = read_dataset(node, /*whole_records=*/true);
  config.answers = node.optional_text("answers").value_or("");
  const std::vector<std::string> modes = {"reference", "simpleqa", "rubric", "pairwise", "choice"};
  const std::string mode = node.choice("mode", modes, "reference");
  config.mode = static_cast<JudgeMode>(std::find(modes.begin(), modes.end(), mode) - modes.begin());
  ConfigNode prompt = node.section("prompt");
  config.system_prompt = prompt.optional_text("system").value_or("");
  config.user_prompt = prompt.optional_text("user").value_or("");
  ConfigNode fields = node.section("fields");
  for (const char* name : {"question", "answer", "references", "answer_a", "answer_b", "options", "rubric"}) {
    if (const auto other = fields.optional_text(name)) config.fields[name] = *other;
  }
  config.label_field = node.optional_text("label").value_or("");
  config.num_classes = static_cast<std::uint64_t>(
      node.integer("classes", config.mode == JudgeMode::kChoice ? 4 : 5, 2, config.mode == JudgeMode::kChoice ? 26 : 10));
  config.low_mass = node.number("low_mass", 0.5, 0.0, 1.0);
  config.use_chat_template = node.choice("chat_template", {"auto", "off"}, "auto") == "auto";
  config.max_prompt_length = static_cast<std::uint64_t>(node.integer("max_prompt_length", 4096, 1, 1 << 24));
  config.max_sequences = static_cast<std::uint64_t>(node.integer("max_sequences", 32, 1, 4096));
  config.token_budget = static_cast<std::uint64_t>(node.integer("token_budget", 1024, 1, 1 << 20));
  config.share_prefixes = node.boolean("share_prefixes", true);
  return config;
}

}  // namespace magister
