#include "magister/tasks/judge/rules.h"

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

}  // namespace

void read_judge_mode(ConfigNode& node, JudgeRules& rules, bool of_one_text) {
  std::vector<std::string> names = {"reference", "simpleqa", "rubric", "pairwise", "choice"};
  if (of_one_text) names.resize(3);
  rules.mode = chosen<JudgeMode>(node, "mode", names);
}

void read_judge_prompts(ConfigNode& node, JudgeRules& rules) {
  rules.prompts.clear();
  for (ConfigNode& one : node.optional_sections("prompts")) rules.prompts.push_back(read_prompt(one, rules.mode));
  if (rules.prompts.size() > 16)
    node.reject("prompts", "{} prompts (every text is judged by each); give at most 16", rules.prompts.size());
  ConfigNode alone = node.only_if(!node.has("prompts"),
                                  "is given together with `prompts` (one or several, not both); remove one of them");
  ConfigNode prompt = alone.section("prompt");
  const JudgePromptConfig single = read_prompt(prompt, rules.mode);
  if (rules.prompts.empty() || !node.has("prompts")) rules.prompts = {single};
}

void read_judge_method(ConfigNode& node, JudgeRules& rules) {
  rules.method = chosen<JudgeMethod>(node, "method", {"prefill", "decode"});
  const bool decode = rules.method == JudgeMethod::kDecode;
  ConfigNode reply =
      node.only_if(decode, "is given without `method: decode` (no reply is written); set the method or remove it");
  const LengthKey max_new_tokens(reply, "max_new_tokens", 256, 1, 1 << 16);
  rules.max_new_tokens = decode ? max_new_tokens : LengthKey();
  rules.read = chosen<JudgeRead>(reply, "read", {"score", "word", "substring"});
  if (rules.read == JudgeRead::kSubstring && rules.mode != JudgeMode::kReference) {
    node.reject(
        "read",
        "substring with another mode than reference (letters and digits occur in any reply); use word or score");
  }
}

void read_judge_fields(ConfigNode& node, JudgeRules& rules) {
  ConfigNode fields = node.section("fields");
  for (const char* name : {"question", "answer", "references", "answer_a", "answer_b", "options", "rubric"}) {
    if (const auto other = fields.optional_text(name)) rules.fields[name] = *other;
  }
}

void read_judge_classes(ConfigNode& node, JudgeRules& rules) {
  rules.num_classes = static_cast<std::uint64_t>(
      node.integer("classes", rules.mode == JudgeMode::kChoice ? 4 : 5, 2, rules.mode == JudgeMode::kChoice ? 26 : 10));
}

void read_judge_length(ConfigNode& node, JudgeRules& rules) {
  rules.use_chat_template = node.choice("chat_template", {"auto", "off"}, "auto") == "auto";
  rules.length_place = node.place("max_prompt_length");
  rules.max_prompt_length = LengthKey(node, "max_prompt_length", 4096, 1, 1 << 24);
}

}  // namespace magister
