// Decodes tokens that arrive one by one: it never returns half a character, and all parts together are decode() of all
// tokens.
#pragma once

#include <string>
#include <vector>

#include "magister/text/tokenizer.h"

namespace magister {

class StreamingDecoder {
 public:
  // tokenizer must outlive it.
  explicit StreamingDecoder(const Tokenizer& tokenizer, bool skip_special_tokens = false)
      : tokenizer_(tokenizer), skip_special_tokens_(skip_special_tokens) {}

  // Returns the text that the token adds for certain; empty while a character is incomplete.
  std::string push(TokenId id);
  // Returns the text that was held back; an incomplete character at the end becomes U+FFFD.
  std::string finish();

 private:
  std::string text_from(std::size_t begin) const;

  const Tokenizer& tokenizer_;
  const bool skip_special_tokens_;
  // The last returned tokens (they decide how the next ones are written), then the tokens held back.
  std::vector<TokenId> ids_;
  std::size_t num_emitted_ = 0;
};

}  // namespace magister
