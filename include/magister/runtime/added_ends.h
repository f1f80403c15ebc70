// The tokens that a tokenizer adds before and after every text (BOS, EOS). A part of a text gets them, too, and they
// are kept when a text is cut.
#pragma once

#include <vector>

#include "magister/core/types.h"
#include "magister/text/tokenizer.h"

namespace magister {

struct AddedEnds {
  std::vector<TokenId> before, after;
};

AddedEnds added_ends(const Tokenizer& tokenizer);

}  // namespace magister
