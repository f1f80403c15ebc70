// The text of tokens as it stands behind others. A decoder of SentencePiece's takes away the blank that a text's first token brings along, and bytes
// that became tokens of their own are a character only together: so a completion's text is what it adds to the text of prompt and completion.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "magister/text/tokenizer.h"

namespace magister {

// Where the end of `before` begins that alone decides how a token behind it is written: its last token with letters of its own. Nothing where none has.
std::optional<std::size_t> settled_at(const Tokenizer& tokenizer, std::span<const TokenId> before);

// That end, or all of `before`; the same as `before` for decode_behind().
std::vector<TokenId> decode_context(const Tokenizer& tokenizer, std::span<const TokenId> before);

// decode(before + ids) less decode(before). A character that begins in `before` and ends in `ids` is theirs where bytes are tokens, as with SentencePiece; with
// byte-level BPE, whose tokens are written alike everywhere, it is decode(ids). The cost is that of a few tokens more than ids.
std::string decode_behind(const Tokenizer& tokenizer, std::span<const TokenId> before, std::span<const TokenId> ids,
                          bool skip_special_tokens = false);

// Whether a token that begins a text is written otherwise than inside one.
bool writes_first_token_otherwise(const Tokenizer& tokenizer);

// What encode(prompt) with these ids behind the prompt is: before what the tokenizer adds at a text's end. Nothing where they do not spell `text` behind it, or
// tokens do not show what the tokenizer adds.
std::optional<std::vector<TokenId>> encode_behind(const Tokenizer& tokenizer, std::string_view prompt,
                                                  std::span<const TokenId> ids, std::string_view text);

}  // namespace magister
