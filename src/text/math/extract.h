// Finds the answer in a text as Math-Verify 0.9.0 does with LaTeX and plain expressions: in boxes; after "answer"; in
// formulas and plain numbers from the end. The first candidate that can be parsed counts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "magister/text/unread.h"
#include "text/math/tree.h"

namespace magister::math {

struct Reading {
  std::string formula;            // the text that was read; empty: nothing found
  TreePtr tree;                   // null: nothing found, or it could not be parsed
  std::string fault;              // why there is no tree
  Unread unread = Unread::kNone;  // without a tree: kNothingFound, kNoFormula or kTooLong
};

// Reads a completion.
Reading read_answer(std::string_view text);
// Reads a right answer, which may be a formula without dollars, or a solution: without a box only the text after its
// last "####" counts.
Reading read_gold(std::string_view text);

}  // namespace magister::math
