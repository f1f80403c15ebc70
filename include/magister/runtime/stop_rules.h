// The rules that end a generated text, and the conversion of its tokens into text.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "magister/core/types.h"
#include "magister/text/tokenizer.h"

namespace magister {

// The rules in addition to the length; the same rules stop the generation and cut the stored text.
struct StopRules {
  std::vector<TokenId> tokens;
  std::vector<std::string> texts;
  bool constrained = false;  // the token that ends a text is no part of it, even if it is not a special token
};

// True if the newest of these tokens, of which there is at least one, ends the text after the prompt (or after its
// decode_context()).
bool ends_text(const Tokenizer& tokenizer, std::span<const TokenId> prompt, const std::vector<TokenId>& tokens,
               const StopRules& rules);

// The text of tokens generated after the prompt (or after its decode_context()), without special tokens, cut where the
// first stop text begins. U+0000 becomes U+FFFD.
std::string text_of(const Tokenizer& tokenizer, std::span<const TokenId> prompt, std::span<const TokenId> tokens,
                    const StopRules& rules);

}  // namespace magister
