// The prompts of an exam: one that writes an item, and those of the checks, whose verdict is the row after the prompt.
// All that read the passages begin with the same text, so that an objective's prompts share its keys and values.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "magister/core/types.h"
#include "magister/runtime/record_prompt.h"
#include "magister/tasks/judge/reader.h"
#include "tasks/exam/config.h"
#include "tasks/exam/item_text.h"

namespace magister {

enum class ExamPrompt : std::uint8_t {
  kWrite,
  kAnswer,        // choose among letters, given the passages
  kClosedAnswer,  // likewise without the passages
  kStatement,     // true or false, given the passages
  kClosedStatement,
  kRight,  // is a proposed answer right, given the passages: yes or no
  kClosedRight,
  kSupport,
  kAlignment,
  kWording,
  kBloom,
  kSame,      // do two items ask the same thing
  kObjective  // writes a learning objective from a passage
};
inline constexpr std::size_t kNumExamPrompts = 13;

// The kind of answers among which the verdict after a prompt is.
enum class AnswerSet : std::uint8_t { kLetters, kTrueFalse, kYesNo, kLevels };
inline constexpr std::size_t kNumAnswerSets = 4;
AnswerSet answers_of(ExamPrompt prompt);

class ExamPrompts {
 public:
  // Throws Error(kConfig) for a tokenizer that cannot tell the answers apart.
  ExamPrompts(const ExamConfig& config, Checkpoint& checkpoint);

  // fields: those that fields_of() makes. Throws Error(kData) with `where`.
  std::vector<TokenId> encode(ExamPrompt prompt, const nlohmann::ordered_json& fields, const std::string& where) const;
  const VerdictReader& reader(AnswerSet answers) const { return readers_[static_cast<std::size_t>(answers)]; }
  // The templates by name, as JSON: the results keep them, so that every prompt can be written again.
  const std::string& templates() const { return templates_; }
  // The verdicts' tokens if they must be stored; otherwise empty.
  std::string identity() const;

 private:
  struct Answers {
    JudgeRules rules;
    std::vector<VerdictClass> classes;
    VerdictTokens tokens;
  };
  std::string templates_;
  PromptEncoder encoder_;
  std::vector<RecordPrompt> prompts_;
  std::vector<Answers> answers_;
  std::vector<TokenId> ends_;
  std::vector<VerdictReader> readers_;
};

// All names that a template may read, each with an empty value.
nlohmann::ordered_json empty_fields();
// "multiple-choice question", ...
const char* words_of(ItemKind kind);

}  // namespace magister
