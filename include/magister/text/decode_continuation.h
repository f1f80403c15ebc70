// Decodes tokens that follow other tokens. A SentencePiece decoder drops the space of a text's first token, and byte
// tokens form a character only together. So the text of a completion is what it adds to the text of prompt and
// completion.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "magister/text/tokenizer.h"

namespace magister {

// Index of the last token of `before` that has letters of its own: the tokens from there on alone decide how a
// following token is written. Nothing if no token has letters.
std::optional<std::size_t> settled_at(const Tokenizer& tokenizer, std::span<const TokenId> before);

// Returns the tokens from settled_at() on, or all of `before`. decode_continuation() gives the same text with them as
// with `before`.
std::vector<TokenId> decode_context(const Tokenizer& tokenizer, std::span<const TokenId> before);

// Returns decode(before + ids) minus decode(before). A character that begins in `before` and ends in `ids` belongs to
// `ids` if the vocabulary has byte tokens (SentencePiece). For byte-level BPE, which writes a token the same
// everywhere, the result is decode(ids). The cost is that of a few tokens more than ids.
std::string decode_continuation(const Tokenizer& tokenizer, std::span<const TokenId> before,
                                std::span<const TokenId> ids, bool skip_special_tokens = false);

// Reports whether a token at the start of a text is written differently than inside one.
bool writes_first_token_otherwise(const Tokenizer& tokenizer);

// Returns encode(prompt) with `ids` after the prompt, before the tokens that the tokenizer adds at a text's end.
// Nothing if the ids do not spell `text` after the prompt, or if the tokens that the tokenizer adds cannot be found.
std::optional<std::vector<TokenId>> encode_continuation(const Tokenizer& tokenizer, std::string_view prompt,
                                                        std::span<const TokenId> ids, std::string_view text);

}  // namespace magister
