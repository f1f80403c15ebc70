// The config of a verifier, as a section of a task gives it (`score:` of task score, `grpo.reward:` of task train), and
// the right answers in records.
#pragma once

#include <string>
#include <vector>

#include "magister/core/config.h"
#include "magister/io/dataset/dataset.h"
#include "magister/text/verifier.h"

namespace magister {

struct VerifierConfig {
  VerifierOptions options;
  // Field of the right answers in a record. Empty: the pattern has no group, and any match is right.
  std::string answer_field;
};

// Reads the keys rule, pattern, match and answer. kind: exact | math | regex, the value of `verifier` in the section;
// any other text means no verifier, and then each of the keys is a fault. It is a fault if the pattern does not
// compile, or if `answer` is given and the pattern has no group.
VerifierConfig read_verifier_config(ConfigNode& section, const std::string& kind);

// The right answers of a record: one text or number, or a list of them, of which any is right; none if field is empty.
// Throws Error(kData) with the place of the record for other types, for an empty list, and for an answer of white space
// alone, since an empty completion would give it.
std::vector<std::string> right_answers(const Record& record, const std::string& field);

// 1.0 if the completion gives one of the answers, or, without answers, if it matches; else 0.0. unread: set if it was
// compared with none of them.
Judged verified(const Verifier& verifier, const std::string& completion, const std::vector<std::string>& answers);

}  // namespace magister
