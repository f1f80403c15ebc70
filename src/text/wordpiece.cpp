#include "text/wordpiece.h"

#include <algorithm>

#include "magister/core/error.h"
#include "text/unicode.h"

namespace magister {

WordPiece::WordPiece(const Vocabulary& vocab, Rules rules) : rules_(std::move(rules)) {
  for (const auto& [token, id] : vocab) {
    begins_.emplace(token, id);
    if (token.starts_with(rules_.prefix)) continues_.emplace(token.substr(rules_.prefix.size()), id);
    longest_ = std::max(longest_, token.size());
  }
}

void WordPiece::encode(std::string_view piece, std::vector<TokenId>& ids) const {
  if (piece.empty() || cache_.find(piece, ids)) return;
  const std::size_t begin = ids.size();
  encode_word(piece, ids);
  cache_.keep(piece, ids.data() + begin, ids.data() + ids.size());
}

void WordPiece::encode_word(std::string_view piece, std::vector<TokenId>& ids) const {
  std::size_t characters = 0;
  for (const char c : piece) characters += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
  const std::size_t before = ids.size();
  bool good = characters <= rules_.max_characters;
  for (std::size_t begin = 0; good && begin < piece.size();) {
    const Vocabulary& tokens = begin == 0 ? begins_ : continues_;
    std::size_t end = std::min(piece.size(), begin + longest_);
    while (end < piece.size() && (static_cast<unsigned char>(piece[end]) & 0xC0) == 0x80) --end;
    auto found = tokens.end();
    while (end > begin) {
      found = tokens.find(std::string(piece.substr(begin, end - begin)));
      if (found != tokens.end()) break;
      do --end;
      while (end > begin && (static_cast<unsigned char>(piece[end]) & 0xC0) == 0x80);
    }
    good = found != tokens.end();
    if (good) ids.push_back(found->second);
    begin = end;
  }
  if (good) return;
  ids.resize(before);
  ids.push_back(rules_.unknown);
}

WordLevel::WordLevel(Vocabulary vocab, TokenId unknown, std::string source)
    : vocab_(std::move(vocab)), unknown_(unknown), source_(std::move(source)) {}

void WordLevel::encode(std::string_view piece, std::vector<TokenId>& ids) const {
  const auto found = vocab_.find(std::string(piece));
  const TokenId id = found == vocab_.end() ? unknown_ : found->second;
  MAGISTER_CHECK(
      id >= 0, ExitCode::kData,
      "{}: has no token for the word \"{}\" and no unknown token (the text cannot be encoded); change the text, "
      "or use another tokenizer",
      source_, printable(piece));
  ids.push_back(id);
}

}  // namespace magister
