// Where in a text its answer stands, as Math-Verify 0.9.0 looks for it with LaTeX and plain expressions: boxes; what follows "answer"; formulas and plain
// numbers from the end. The first of these that can be read counts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "magister/text/unread.h"
#include "text/math/tree.h"

namespace magister::math {

struct Reading {
  std::string formula;            // what was read; empty: nothing was found
  TreePtr tree;                   // null: nothing was found, or it could not be read
  std::string fault;              // why not
  Unread unread = Unread::kNone;  // without a tree: kNothingFound, kNoFormula or kTooLong
};

// Of what somebody wrote.
Reading read_answer(std::string_view text);
// Of a right answer, which may be a formula without dollars or a solution: what stands behind its last "####", if there is such a mark.
Reading read_gold(std::string_view text);

}  // namespace magister::math
