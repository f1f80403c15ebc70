// The tokens that a tokenizer puts around every text, BOS and EOS: what a part of a text gets, too, and what stays when a text is cut.
#pragma once

#include <vector>

#include "magister/core/types.h"
#include "magister/text/tokenizer.h"

namespace magister {

struct AddedEnds {
  std::vector<TokenId> before, behind;
};

AddedEnds added_ends(const Tokenizer& tokenizer);

}  // namespace magister
