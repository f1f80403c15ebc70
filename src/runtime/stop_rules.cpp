// See stop_rules.h.
#include "magister/runtime/stop_rules.h"

#include <algorithm>
#include <utility>

#include "magister/core/utf8.h"
#include "magister/text/decode_continuation.h"

namespace magister {

bool ends_text(const Tokenizer& tokenizer, std::span<const TokenId> prompt, const std::vector<TokenId>& tokens,
               const StopRules& rules) {
  if (std::find(rules.tokens.begin(), rules.tokens.end(), tokens.back()) != rules.tokens.end()) return true;
  if (rules.texts.empty()) return false;
  // A stop text ends in the newest token, so the last tokens suffice: every token that is not skipped and has a text
  // has at least one byte. A few more tokens cover characters that begin before them.
  std::size_t longest = 0;
  for (const std::string& text : rules.texts) longest = std::max(longest, text.size());
  std::size_t count = 0;
  for (std::size_t seen = 0; count < tokens.size() && seen < longest + 8; ++count) {
    const TokenId id = tokens[tokens.size() - 1 - count];
    seen += tokenizer.is_special(id) || tokenizer.token_bytes(id).empty() ? 0 : 1;
  }
  const auto before = count == tokens.size() ? prompt : std::span(tokens).first(tokens.size() - count);
  const std::string text = decode_continuation(tokenizer, before, std::span(tokens).last(count), true);
  return std::any_of(rules.texts.begin(), rules.texts.end(),
                     [&](const std::string& stop) { return text.find(stop) != text.npos; });
}

std::string text_of(const Tokenizer& tokenizer, std::span<const TokenId> prompt, std::span<const TokenId> tokens,
                    const StopRules& rules) {
  const auto ends = [&](TokenId id) {
    return std::find(rules.tokens.begin(), rules.tokens.end(), id) != rules.tokens.end();
  };
  if (rules.constrained && !tokens.empty() && ends(tokens.back())) tokens = tokens.first(tokens.size() - 1);
  std::string text = decode_continuation(tokenizer, prompt, tokens, /*skip_special_tokens=*/true);
  std::size_t end = text.size();
  for (const std::string& stop : rules.texts) end = std::min(end, text.find(stop));
  text.resize(std::min(end, text.size()));
  return without_nul(std::move(text));
}

}  // namespace magister
