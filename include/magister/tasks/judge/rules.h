// How a judge is prompted and how its verdict is read: keys that task `judge` and a judge as a reward
// (`grpo.reward.judge`) share.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "magister/core/config.h"
#include "magister/runtime/text_keys.h"

namespace magister {

enum class JudgeMode { kReference, kSimpleQa, kRubric, kPairwise, kChoice };
// kPrefill: one prefill whose last row is the verdict. kDecode: a written reply.
enum class JudgeMethod { kPrefill, kDecode };
// How a written reply becomes a verdict. kScore: the position after its "Verdict:" is scored like a prefill's row.
// kWord: the first verdict word in it. kSubstring: the first verdict of the list that occurs anywhere in it, even
// inside a word.
enum class JudgeRead { kScore, kWord, kSubstring };
// A prompt of the experiment: a ready one, or templates over the record's fields that replace its parts.
struct JudgePromptConfig {
  std::string named;         // empty: the mode's first
  std::string system, user;  // empty: the ready prompt's; no system prompt if only `user` is given
};

// max_new_tokens: of a reply; 0: no reply is written.
struct JudgeRules : TextLengths {
  std::string name;  // of the task, for messages
  JudgeMode mode = JudgeMode::kReference;
  std::vector<JudgePromptConfig> prompts = {{}};  // each of them judges every text
  JudgeMethod method = JudgeMethod::kPrefill;
  JudgeRead read = JudgeRead::kScore;
  std::map<std::string, std::string> fields;  // name in the prompt -> name in the record, if they differ
  std::uint64_t num_classes = 5;              // rubric: scores 1 .. n; choice: the first n letters
  double low_mass = 0.5;                      // a row is `low_mass` if the verdicts' total probability is below this
  bool use_chat_template = true;              // off: system and user prompt as plain text
};

// Read the keys as task `judge` has them, in its order. The last keys have one function each, because the task has
// others between them.
void read_judge_mode(ConfigNode& node, JudgeRules& rules,
                     bool of_one_text);                        // of_one_text: allow only modes that judge one answer
void read_judge_prompts(ConfigNode& node, JudgeRules& rules);  // prompts, prompt; after the mode
void read_judge_method(ConfigNode& node, JudgeRules& rules);   // method, max_new_tokens, read
void read_judge_fields(ConfigNode& node, JudgeRules& rules);   // fields
void read_judge_classes(ConfigNode& node, JudgeRules& rules);  // classes
void read_judge_length(ConfigNode& node, JudgeRules& rules);   // chat_template, max_prompt_length

}  // namespace magister
