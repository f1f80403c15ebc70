// Encodes a text that a model wrote after a prompt, for a model that reads both.
#pragma once

#include <string>
#include <vector>

#include "magister/core/types.h"
#include "magister/io/results/tokenizer_identity.h"
#include "magister/text/tokenizer.h"

namespace magister {

struct WrittenText {
  std::string text;          // the text after its prompt, up to the first stop text
  std::vector<TokenId> ids;  // the ids as the model wrote them
};

// Encodes prompt and text, with what the tokenizer adds. The ids stay as written, except special ones, if this
// tokenizer wrote them (writer: identity of the tokenizer that did) and if it encodes the first token of a text
// differently from one inside (SentencePiece's blank). Otherwise, and if the text is only the beginning of the ids, the
// joined text is encoded.
std::vector<TokenId> encode_written(const Tokenizer& tokenizer, const std::string& prompt, const WrittenText& text,
                                    const TokenizerIdentity& writer);

}  // namespace magister
