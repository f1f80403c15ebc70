// Encodes texts with a tokenizer of arbitrary bytes: ids inside the vocabulary, guarded texts, and the promise of the
// streaming decoder.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "fuzz/fuzz_target.h"
#include "magister/text/streaming_decoder.h"

namespace magister::fuzz {

// The parts form the whole text, unless a decoder changes text that it already returned (for example a Replace over
// several tokens), which a stream cannot do.
inline void check_streaming(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  StreamingDecoder decoder(tokenizer);
  std::string parts, said;
  bool takes_back = false;
  for (std::size_t n = 0; n < ids.size(); ++n) {
    parts += decoder.push(ids[n]);
    std::string text = tokenizer.decode(std::span(ids).first(n + 1));
    while (text.ends_with("\xEF\xBF\xBD")) text.resize(text.size() - 3);  // may still become a character
    takes_back = takes_back || !text.starts_with(said);
    said = std::move(text);
  }
  const std::string whole = tokenizer.decode(ids);
  require(takes_back || parts + decoder.finish() == whole, "parts that are not the whole text");
}

inline void check_texts(const Tokenizer& tokenizer) {
  for (const char* line :
       {"", "The plan of  unit 12,\n\tdéjà vu", "数据 \u200d👍🏽 <s>a</s> ﬁ Å", "aaaaaaaaaaaaaaaaaaaaaaaa"}) {
    const std::vector<TokenId> ids = tokenizer.encode(line);
    for (const TokenId id : ids) require(id >= 0 && id < tokenizer.vocab_size(), "an id beyond the vocabulary");
    check_streaming(tokenizer, ids);
    tokenizer.decode(ids, true);
    tokenizer.encode(tokenizer.guard_special_tokens(line), {true, true, true});
  }
}

}  // namespace magister::fuzz
