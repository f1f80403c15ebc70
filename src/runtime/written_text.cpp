// See written_text.h.
#include "magister/runtime/written_text.h"

#include <algorithm>
#include <iterator>

#include "magister/text/decode_continuation.h"

namespace magister {

std::vector<TokenId> encode_written(const Tokenizer& tokenizer, const std::string& prompt, const WrittenText& text,
                                    const TokenizerIdentity& writer) {
  if (same_tokenizer({tokenizer.sha256(), tokenizer.rules_sha256()}, writer) &&
      writes_first_token_otherwise(tokenizer)) {
    std::vector<TokenId> ids;
    std::copy_if(text.ids.begin(), text.ids.end(), std::back_inserter(ids),
                 [&](TokenId id) { return id < tokenizer.vocab_size() && !tokenizer.is_special(id); });
    if (auto all = encode_continuation(tokenizer, prompt, ids, text.text)) return *std::move(all);
  }
  return tokenizer.encode(prompt + text.text);
}

}  // namespace magister
