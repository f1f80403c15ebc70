// See decode_continuation.h. The reference is transformers' decode of prompt and completion minus its decode of the
// prompt.
#include "magister/text/decode_continuation.h"

#include <algorithm>
#include <cstdio>

#include "magister/core/utf8.h"

namespace magister {
namespace {

constexpr std::string_view kBadBytes = "\xEF\xBF\xBD";

// Reports whether the token is a byte token ("<0xE2>"), SentencePiece's fallback.
bool is_byte_token(const Tokenizer& tokenizer, TokenId id) {
  const std::string_view bytes = tokenizer.token_bytes(id);
  if (bytes.size() != 1) return false;
  char name[8];
  std::snprintf(name, sizeof name, "<0x%02X>", static_cast<unsigned char>(bytes[0]));
  return tokenizer.token_to_id(name) == id;
}

bool has_byte_tokens(const Tokenizer& tokenizer) {
  const TokenId id = tokenizer.token_to_id("<0x0A>");
  return id >= 0 && is_byte_token(tokenizer, id);
}

bool is_written(const Tokenizer& tokenizer, TokenId id) {
  return id >= 0 && id < tokenizer.vocab_size() && !tokenizer.is_special(id);
}

bool has_letters(const Tokenizer& tokenizer, TokenId id) {
  if (!is_written(tokenizer, id) || is_byte_token(tokenizer, id)) return false;
  const std::string_view bytes = tokenizer.token_bytes(id);
  return find_invalid_utf8(bytes) == bytes.size() &&
         std::any_of(bytes.begin(), bytes.end(), [](unsigned char c) { return c > ' '; });
}

// Byte-level BPE: reports whether the last token with a text may be part of a character.
bool ends_within(const Tokenizer& tokenizer, std::span<const TokenId> ids) {
  const auto last = std::find_if(ids.rbegin(), ids.rend(), [&](TokenId id) { return is_written(tokenizer, id); });
  if (last == ids.rend()) return false;
  const std::string_view bytes = tokenizer.token_bytes(*last);
  return find_invalid_utf8(bytes) != bytes.size();
}

std::vector<TokenId> joined(std::span<const TokenId> a, std::span<const TokenId> b) {
  std::vector<TokenId> both(a.begin(), a.end());
  both.insert(both.end(), b.begin(), b.end());
  return both;
}

// The length of the common prefix, in whole characters.
std::size_t common_bytes(std::string_view a, std::string_view b) {
  std::size_t at = static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  while (at > 0 && at < b.size() && (static_cast<unsigned char>(b[at]) & 0xC0) == 0x80) --at;
  return at;
}

}  // namespace

std::optional<std::size_t> settled_at(const Tokenizer& tokenizer, std::span<const TokenId> before) {
  for (std::size_t at = before.size(); at-- > 0;) {
    if (has_letters(tokenizer, before[at])) return at;
  }
  return std::nullopt;
}

std::vector<TokenId> decode_context(const Tokenizer& tokenizer, std::span<const TokenId> before) {
  const auto end = before.subspan(settled_at(tokenizer, before).value_or(0));
  return {end.begin(), end.end()};
}

std::string decode_continuation(const Tokenizer& tokenizer, std::span<const TokenId> before,
                                std::span<const TokenId> ids, bool skip_special_tokens) {
  before = before.subspan(settled_at(tokenizer, before).value_or(0));
  const auto text_of = [&](std::span<const TokenId> some) { return tokenizer.decode(some, skip_special_tokens); };
  std::string start = text_of(before);
  const bool byte_tokens = has_byte_tokens(tokenizer);
  if (byte_tokens && start.ends_with(kBadBytes)) {
    const std::string whole = text_of(joined(before, ids));
    return whole.substr(common_bytes(start, whole));
  }
  // A partial character of byte-level BPE stays with the prompt. Byte tokens that follow a whole character of byte
  // tokens may be invalid UTF-8, and the decoder then replaces that character too. So `before` is shortened until
  // neither applies.
  while (!before.empty()) {
    const std::string whole = text_of(joined(before, ids));
    const bool half = !byte_tokens && start.ends_with(kBadBytes) && ends_within(tokenizer, before);
    if (!half && whole.starts_with(start)) return whole.substr(start.size());
    before = before.first(before.size() - 1);
    start = text_of(before);
  }
  return text_of(ids);
}

bool writes_first_token_otherwise(const Tokenizer& tokenizer) {
  const std::vector<TokenId> ids =
      tokenizer.encode(" a", {.add_special_tokens = false, .special_tokens_in_text = false});
  return !ids.empty() && tokenizer.decode(std::span(ids).first(1)) != tokenizer.token_bytes(ids.front());
}

std::optional<std::vector<TokenId>> encode_continuation(const Tokenizer& tokenizer, std::string_view prompt,
                                                        std::span<const TokenId> ids, std::string_view text) {
  EncodeOptions plain;
  plain.add_special_tokens = false;
  const std::vector<TokenId> letter = tokenizer.encode("a", plain), whole = tokenizer.encode("a");
  const auto found = std::search(whole.begin(), whole.end(), letter.begin(), letter.end());
  if (letter.empty() || found == whole.end()) return std::nullopt;
  const std::vector<TokenId> before = tokenizer.encode(prompt, plain);
  if (decode_continuation(tokenizer, before, ids, true) != text) return std::nullopt;
  std::vector<TokenId> all(whole.begin(), found);
  all.insert(all.end(), before.begin(), before.end());
  all.insert(all.end(), ids.begin(), ids.end());
  all.insert(all.end(), found + static_cast<std::ptrdiff_t>(letter.size()), whole.end());
  return all;
}

}  // namespace magister
