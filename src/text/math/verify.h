// The rule math_verify: whether an answer's text gives the gold answer's value, and why.
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

// Where the gold answer is the letter of a choice: the letter that a text without a box chooses; 0: there is none, or no choice.
char chosen_letter(std::string_view gold, std::string_view answer);

// Never throws for any text. The same everywhere: what ends by a bound ends by one of steps and sizes, none of time.
Verdict verify(std::string_view gold, std::string_view answer);

}  // namespace magister::math
