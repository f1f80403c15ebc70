// What ends a text that a model writes, and the text that its tokens are.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "magister/core/types.h"
#include "magister/text/tokenizer.h"

namespace magister {

// What ends a text besides its length: the same for stopping and for cutting the text that is stored.
struct StopRules {
  std::vector<TokenId> tokens;
  std::vector<std::string> texts;
  bool constrained = false;  // the token that ends a text is not part of it, even if it is no special one
};

// Whether the newest of these tokens, at least one, ends the text that stands behind the prompt (or its decode_context()).
bool ends_text(const Tokenizer& tokenizer, std::span<const TokenId> prompt, const std::vector<TokenId>& tokens,
               const StopRules& rules);

// The text of tokens that were generated behind the prompt (or its decode_context()), without special tokens, cut where the first stop text begins.
// U+0000 becomes U+FFFD.
std::string text_of(const Tokenizer& tokenizer, std::span<const TokenId> prompt, std::span<const TokenId> tokens,
                    const StopRules& rules);

}  // namespace magister
