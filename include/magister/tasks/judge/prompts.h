// The prompts of a judge: the modes' own, or the experiment's, as templates over a record's fields, and the tokens of each
// record's samples (one, or both orders of a pair).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "magister/io/dataset/dataset.h"
#include "magister/runtime/chat_prompts.h"
#include "magister/tasks/judge/rules.h"
#include "magister/tasks/judge/scoring.h"
#include "magister/text/tokenizer.h"

namespace magister {

// The verdicts of the mode in the order of their numbers.
std::vector<VerdictClass> verdict_classes(const JudgeRules& config);

// Of a field: always a list, or nothing.
bool is_list_field(const std::string& name);

class JudgePrompts {
 public:
  // Both are kept by reference. Errors as of ChatPrompts and ChatTemplate.
  JudgePrompts(const JudgeRules& config, Checkpoint& checkpoint);

  std::vector<VerdictClass> classes() const { return verdict_classes(config_); }
  // Samples a text and prompt: 2 for pairs (the second with the answers exchanged), else 1.
  std::uint64_t orders() const { return config_.mode == JudgeMode::kPairwise ? 2 : 1; }
  // Samples a text: its prompts, and of each its orders, one after the other.
  std::uint64_t group() const { return orders() * prompts_.size(); }
  // The prompts of one record, whose text is its JSON line. answers: texts of a generate task for this record; without
  // them the record's own field `answer` counts. Throws Error(kData) with the record's place.
  std::vector<std::vector<TokenId>> encode(const Record& record, const std::vector<std::string>& answers) const;
  // Fields of the records that the prompts read, by name, each once. What the program adds (`classes`, `reply_rule`) is none.
  std::vector<std::string> field_names() const;
  // Their values as the prompts of each text see them (a pair: as given), in the order of field_names(): texts as they are, lists and other values as
  // JSON, nothing as "" (of a list: "null"). Errors as of encode().
  std::vector<std::vector<std::string>> field_values(const Record& record,
                                                     const std::vector<std::string>& answers) const;
  // Every name that a template reads is a field of the first records, or is tested for. Throws Error(kConfig) with the template's
  // line and column. answers: `answer` is a generate task's. Local: reads some records.
  void check_fields(const Dataset& dataset, bool answers) const;
  // What determines the prompts besides the records and the checkpoint's chat template.
  std::string sha256() const;

 private:
  struct Prompt {
    ChatTemplate system, user;
    bool own_system = false, own_user = false;  // of the experiment, not ready ones
  };
  nlohmann::ordered_json fields_of(const Record& record, const std::vector<std::string>& answers) const;
  std::vector<TokenId> one(const Prompt& prompt, const nlohmann::ordered_json& fields, const std::string& where) const;

  const JudgeRules& config_;
  const Tokenizer& tokenizer_;
  std::vector<Prompt> prompts_;
  std::string texts_, reply_rule_;
  bool uses_ready_user_ = false;
  std::unique_ptr<ChatPrompts> chat_;  // null: plain text
};

}  // namespace magister
