// A text that a model wrote behind a prompt, for a model that reads both.
#pragma once

#include <string>
#include <vector>

#include "magister/core/types.h"
#include "magister/io/results/tokenizer_identity.h"
#include "magister/text/tokenizer.h"

namespace magister {

struct WrittenText {
  std::string text;          // as it stands behind its prompt, up to where a stop text begins
  std::vector<TokenId> ids;  // as the model wrote them
};

// Prompt and text as ids, with what the tokenizer adds. Where the ids are its own (writer: of the tokenizer that wrote them) and it writes the token that
// begins a text otherwise than one inside (SentencePiece's blank), they stay as they were written, but for special ones. Else, and where the text is only
// their beginning, the joined text is encoded.
std::vector<TokenId> encode_written(const Tokenizer& tokenizer, const std::string& prompt, const WrittenText& text,
                                    const TokenizerIdentity& writer);

}  // namespace magister
