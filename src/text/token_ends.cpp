// Finds the end of each token in a text by comparing the tokens' bytes with it. Encoding a prefix of the text would not
// do: its last token may differ from the one in the whole text.
#include <cctype>

#include "magister/text/tokenizer.h"

namespace magister {
namespace {

bool is_blank(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

// The end of a token that begins at `at`; nothing if the text differs there.
std::optional<std::size_t> end_of(std::string_view text, std::size_t at, std::string_view token) {
  if (text.substr(at).starts_with(token)) return at + token.size();
  // The tokenizer may add a space before a word; the text does not have it.
  if (token.starts_with(' ') && text.substr(at).starts_with(token.substr(1))) return at + token.size() - 1;
  // A token that strips includes the white space before it.
  std::size_t begin = at;
  while (begin < text.size() && is_blank(text[begin])) ++begin;
  if (begin > at && !token.empty() && text.substr(begin).starts_with(token)) return begin + token.size();
  return std::nullopt;
}

}  // namespace

std::optional<std::vector<std::size_t>> Tokenizer::token_ends(std::string_view text,
                                                              std::span<const TokenId> ids) const {
  std::vector<std::size_t> ends;
  std::size_t at = 0;
  for (const TokenId id : ids) {
    const auto end = end_of(text, at, token_bytes(id));
    if (!end) return std::nullopt;
    ends.push_back(at = *end);
  }
  for (std::size_t rest = at; rest < text.size(); ++rest) {
    if (!is_blank(text[rest])) return std::nullopt;
  }
  return ends;
}

}  // namespace magister
