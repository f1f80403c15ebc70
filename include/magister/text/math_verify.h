// Explains the rule math_verify for one pair: what was read on each side and why the answer is right or wrong.
// Verifier (verifier.h) uses this rule.
#pragma once

#include <string>
#include <string_view>

namespace magister {

struct MathReading {
  std::string formula;  // where the answer was found, as written; empty: no answer found
  std::string tree;     // one node per line, indented; empty: not parsed
  std::string fault;    // why it was not parsed
};

struct MathExplanation {
  bool right = false;
  std::string why;
  MathReading gold, answer;
};

// Never throws. The work on a pair is bounded by sizes and steps, so the result is the same everywhere.
MathExplanation explain_math(std::string_view gold, std::string_view answer);

}  // namespace magister
