// The keys of `task: judge`. configs/README.md lists each with default and range; keep the two in step.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "magister/core/config.h"
#include "magister/io/dataset/dataset.h"
#include "magister/run/experiment_config.h"
#include "magister/run/task_kinds.h"

namespace magister {

class Task;

enum class JudgeMode { kReference, kSimpleQa, kRubric, kPairwise, kChoice };
// One prefill whose last row is the verdict, or a written reply.
enum class JudgeMethod { kPrefill, kDecode };
// How a written reply becomes a verdict: score: the words behind its "Verdict:" are scored like a prefill's row; word: the first
// verdict word in it; substring: the first verdict of the list that occurs anywhere in it, even inside a word.
enum class JudgeRead { kScore, kWord, kSubstring };
// How several verdicts on one text become one.
enum class JudgeCombine { kMeanLogOdds, kMajority, kUnanimous };

// A prompt of the experiment: a ready one, its parts replaced by templates over the record's fields.
struct JudgePromptConfig {
  std::string named;         // empty: the mode's first
  std::string system, user;  // empty: the ready prompt's; with a user prompt of its own and no name, no system prompt
};

struct JudgeConfig {
  std::string name = "verdicts";
  ModelSection model;     // the task's own or the experiment's
  DatasetConfig dataset;  // records with the fields that the prompt reads
  std::string answers;    // a generate task of this experiment: its texts are the field `answer`
  JudgeMode mode = JudgeMode::kReference;
  std::vector<JudgePromptConfig> prompts = {{}};  // each of them judges every text
  JudgeMethod method = JudgeMethod::kPrefill;
  JudgeRead read = JudgeRead::kScore;
  std::uint64_t max_new_tokens = 0;  // of a reply; 0: none is written
  JudgeCombine combine = JudgeCombine::kMeanLogOdds;
  std::vector<std::string>
      panel;  // judge tasks before this one, whose verdicts on the same texts are combined with its own
  std::map<std::string, std::string> fields;  // name in the prompt -> name in the record, where they differ
  std::string label_field;                    // a person's verdict, for the summary; empty: none
  std::uint64_t num_classes = 5;              // rubric: scores 1 .. n; choice: the first n letters
  double low_mass = 0.5;                      // below this probability of all verdicts together a row is `low_mass`
  bool use_chat_template = true;              // off: system and user prompt as plain text
  std::uint64_t max_prompt_length = 4096;
  std::string length_place;         // its file:line:column and key
  std::uint64_t max_sequences = 0;  // 0: auto
  std::uint64_t token_budget = 0;   // likewise
  bool share_prefixes = true;
};

JudgeConfig read_judge_config(ConfigNode& node, const ExperimentConfig& experiment);
// Implemented with the task itself (src/tasks/judge/task.cpp).
TaskKind judge_task();

}  // namespace magister
