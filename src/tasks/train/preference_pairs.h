// Records of which one answer was preferred - prompt, chosen, rejected as in TRL's preference data sets, texts or lists
// of messages - as the tokens of two samples, first the chosen answer's, each behind its prompt.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "magister/io/dataset/dataset.h"
#include "magister/run/sample_plan.h"
#include "magister/runtime/chat_prompts.h"
#include "magister/train/objective.h"

namespace magister {

// Where an answer does not fit, the begin or the end of prompt and answer stays.
enum class TruncationMode { kKeepStart, kKeepEnd };

struct PairRules {
  ObjectiveKind objective = ObjectiveKind::kDpo;
  DatasetConfig dataset;
  std::uint64_t max_length = 1024;
  TruncationMode truncation = TruncationMode::kKeepStart;  // of kDpo; a reward is never read from a part of an answer
  bool append_eos = true;                                  // to texts
};

class PairEncoder {
 public:
  // The checkpoint is kept by reference: its chat template and end tokens are read, and become a part of its identity,
  // when the first record shows which are needed: TaskRunner has every rank encode it before the identity is made.
  // rules are copied.
  PairEncoder(Checkpoint& checkpoint, const PairRules& rules);

  // Two samples. With kDpo the answers' tokens are marked: those behind what both share with the prompt's tokens, as
  // TRL has it. A pair of a reward model with an answer beyond max_length gives two empty samples, which take no part.
  // Throws Error(kData) with the record's place for fields that are missing or of another kind, answers that are empty
  // or equal, and a margin that is no number.
  std::vector<SampleTokens> encode(const Record& record);
  // 0 where the data set names none.
  double margin(const Record& record) const;
  // Where the records hold chats.
  bool has_chats() const { return chat_.has_value(); }
  TokenId appended() const { return eos_; }  // -1: none

 private:
  struct Answers {
    nlohmann::ordered_json prompt, chosen, rejected;  // all texts, or all lists of messages
  };
  Answers answers(const Record& record) const;
  void require_one_kind(const Answers& answers, const std::string& where);
  std::vector<TokenId> tokens(const nlohmann::ordered_json& prompt, const nlohmann::ordered_json& answer,
                              const std::string& where) const;
  std::vector<TokenId> prompt_tokens(const nlohmann::ordered_json& prompt, const std::string& where) const;
  SampleTokens cut(std::vector<TokenId> ids, std::size_t prompt_length) const;

  Checkpoint& checkpoint_;
  PairRules rules_;
  std::optional<ChatPrompts> chat_;
  std::optional<bool> chats_;  // the kind of the first record
  TokenId eos_ = -1;           // that ends a text; -1: none is appended
};

}  // namespace magister
