// The rule math_verify: decides whether an answer's text gives the value of the gold answer, and says why.
#pragma once

#include <string>
#include <string_view>

#include "text/math/extract.h"

namespace magister::math {

struct Verdict {
  bool right = false;
  std::string why;
  Unread unread = Unread::kNone;
  Reading gold, answer;
};

// If the gold answer is the letter of a choice: the letter that a text without a box chooses; 0: no letter, or no
// choice.
char chosen_letter(std::string_view gold, std::string_view answer);

// Never throws. The result is the same everywhere: bounds are on steps and sizes, never on time.
Verdict verify(std::string_view gold, std::string_view answer);

}  // namespace magister::math
