// The rule math_verify, explained for one pair: what was read on either side and why the answer is right or wrong. Verifier (verifier.h) uses it.
#pragma once

#include <string>
#include <string_view>

namespace magister {

struct MathReading {
  std::string formula;  // where the answer was found, as it is written; empty: nothing was
  std::string tree;     // a part a line, indented; empty: not read
  std::string fault;    // why it was not
};

struct MathExplanation {
  bool right = false;
  std::string why;
  MathReading gold, answer;
};

// Never throws, whatever the texts are; a pair ends by bounds of sizes and steps, the same everywhere.
MathExplanation explain_math(std::string_view gold, std::string_view answer);

}  // namespace magister
