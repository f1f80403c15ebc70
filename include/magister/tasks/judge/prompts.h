// The prompts of a judge: the modes' ready ones, or the experiment's, as templates over a record's fields, and the
// tokens of each record's samples (one, or both orders of a pair).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "magister/io/dataset/dataset.h"
#include "magister/runtime/record_prompt.h"
#include "magister/tasks/judge/rules.h"
#include "magister/tasks/judge/scoring.h"
#include "magister/text/tokenizer.h"

namespace magister {

// The verdicts of the mode, in the order of their numbers.
std::vector<VerdictClass> verdict_classes(const JudgeRules& config);

// True for a field that is always a list, or null.
bool is_list_field(const std::string& name);

class JudgePrompts {
 public:
  // Keeps references to both. Throws like ChatPrompts and ChatTemplate.
  JudgePrompts(const JudgeRules& config, Checkpoint& checkpoint);

  std::vector<VerdictClass> classes() const { return verdict_classes(config_); }
  // Samples per text and prompt: 2 for pairs (the second with the answers exchanged), else 1.
  std::uint64_t orders() const { return config_.mode == JudgeMode::kPairwise ? 2 : 1; }
  // Samples per text: for each of its prompts the orders, one after the other.
  std::uint64_t group() const { return orders() * prompts_.size(); }
  // The prompts of one record. answers: texts of a generate task for this record; if empty, the record's own field
  // `answer` is used. Throws Error(kData) with the record's place.
  std::vector<std::vector<TokenId>> encode(const Record& record, const std::vector<std::string>& answers) const;
  // Names of the record's fields that the prompts read, each once, without the fields that the program adds (`classes`,
  // `reply_rule`).
  std::vector<std::string> field_names() const;
  // Values of field_names() as the prompts of each text see them (for a pair: in the given order). Strings are
  // unchanged; lists and other values are JSON; null is "" (for a list field: "null"). Throws like encode().
  std::vector<std::vector<std::string>> field_values(const Record& record,
                                                     const std::vector<std::string>& answers) const;
  // Names of the fields that hold what is judged: `answer`, or both answers of a pair, if a prompt reads them; else all
  // of field_names().
  std::vector<std::string> judged_fields() const;
  // True if these fields are empty in all texts of the record. Throws like encode().
  bool is_empty(const Record& record, const std::vector<std::string>& answers) const;
  // Checks that every name that a template of the experiment reads is a field of the first records, or that the
  // template tests for it. Throws Error(kConfig) with the template's line and column. answers: a generate task gives
  // the field `answer`. Reads some records. Local.
  void check_fields(const Dataset& dataset, bool answers) const;
  // Hash of all that determines the prompts besides the records and the checkpoint's chat template.
  std::string sha256() const;

 private:
  struct Prompt {
    RecordPrompt texts;
    bool own_system = false, own_user = false;  // written in the experiment, not ready ones
  };
  nlohmann::ordered_json fields_of(const Record& record, const std::vector<std::string>& answers) const;
  std::vector<TokenId> one(const Prompt& prompt, const nlohmann::ordered_json& fields, const std::string& where) const;

  const JudgeRules& config_;
  std::vector<Prompt> prompts_;
  std::string texts_, reply_rule_;
  bool uses_ready_user_ = false;
  const PromptEncoder encoder_;
};

}  // namespace magister
