// Preference pairs: records with prompt, chosen and rejected as in the preference data sets of TRL, as texts or lists
// of messages. A record becomes two samples, first that of the chosen answer; each has the prompt and the answer.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "magister/io/dataset/dataset.h"
#include "magister/run/sample_plan.h"
#include "magister/runtime/chat_prompts.h"
#include "magister/train/objective.h"

namespace magister {

// Says which end of prompt and answer is kept if they are too long.
enum class TruncationMode { kKeepStart, kKeepEnd };

struct PairRules {
  ObjectiveKind objective = ObjectiveKind::kDpo;
  DatasetConfig dataset;
  std::uint64_t max_length = 1024;
  TruncationMode truncation = TruncationMode::kKeepStart;  // kDpo only; a reward is never read from a part of an answer
  bool append_eos = true;                                  // of texts, not of chats
};

class PairEncoder {
 public:
  // The checkpoint is kept by reference; rules are copied. The first record decides which of chat template and end
  // tokens are read and become part of the checkpoint's identity. TaskRunner has every rank encode that record before
  // the identity is made.
  PairEncoder(Checkpoint& checkpoint, const PairRules& rules);

  // Returns two samples. kDpo: the tokens of the answers are marked, which follow the longest prefix that both share
  // with the tokens of the prompt, as in TRL. kReward: a pair with an answer beyond max_length gives two empty samples,
  // which take no part. Throws Error(kData) with the place of the record for fields that are missing or of another
  // kind, for answers that are empty or equal, and for a margin that is not a number.
  std::vector<SampleTokens> encode(const Record& record);
  // 0 if the data set names no field for margins.
  double margin(const Record& record) const;
  // True: the records hold chats.
  bool has_chats() const { return chat_.has_value(); }
  TokenId appended() const { return eos_; }  // -1: none

 private:
  struct Answers {
    nlohmann::ordered_json prompt, chosen, rejected;  // all texts or all lists of messages
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
  TokenId eos_ = -1;           // end token of texts; -1: none is appended
};

}  // namespace magister
