// A verifier as a section of a task names it - `score:` of task score, `grpo.reward:` of task train - and the right answers in records.
#pragma once

#include <string>
#include <vector>

#include "magister/core/config.h"
#include "magister/io/dataset/dataset.h"
#include "magister/text/verifier.h"

namespace magister {

struct VerifierConfig {
  VerifierOptions options;
  std::string
      answer_field;  // where a record holds what is right; empty: a pattern without a group, whose any match is right
};

// The keys rule, pattern, match and answer. kind: exact | math | regex as `verifier` of the section says it, or another word for none; then each
// of them is a fault. A pattern that does not compile, and one whose groups and `answer` do not belong together, are faults.
VerifierConfig read_verifier_config(ConfigNode& section, const std::string& kind);

// The answers of a record that are right: one text or number, or a list of which any will do; none where there is no field. Throws Error(kData)
// with the record's place for what is neither, for an empty list and for an answer of white space alone, which silence would give.
std::vector<std::string> right_answers(const Record& record, const std::string& field);

// 1.0 where the completion gives one of the answers, or where there are none matches; else 0.0, unread where it was compared with none of them.
Judged verified(const Verifier& verifier, const std::string& completion, const std::vector<std::string>& answers);

}  // namespace magister
