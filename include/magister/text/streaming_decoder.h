// Text from tokens that come one by one: never half a character, and together what decode() makes of all of them.
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

  // What the token adds for sure; empty while a character is incomplete.
  std::string push(TokenId id);
  // What was held back: an incomplete character at the end becomes U+FFFD.
  std::string finish();

 private:
  std::string text_from(std::size_t begin) const;

  const Tokenizer& tokenizer_;
  const bool skip_special_tokens_;
  std::vector<TokenId>
      ids_;  // those said last, for what stands before decides how a token is written; then those held back
  std::size_t num_said_ = 0;
};

}  // namespace magister
