// Pairs of symbols that merge into one, and the order in which they do: lowest rank first, then leftmost.
// Source: Sennrich et al. arXiv 1508.07909; huggingface/tokenizers models/bpe (order of merges and ties).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "magister/core/types.h"

namespace magister {

class MergeTable {
 public:
  struct Merge {
    std::uint32_t rank = 0;
    TokenId id = -1;
  };
  // Makes room for exactly `count` pairs.
  void reserve(std::size_t count);
  // The last of two equal pairs wins, unless keep_first.
  void add(TokenId left, TokenId right, Merge merge, bool keep_first = false);
  // Merges neighbours until no pair is left. O(n log n). Symbols are not negative.
  void apply(std::vector<TokenId>& symbols) const;

 private:
  const Merge* find(TokenId left, TokenId right) const;
  void apply_short(std::vector<TokenId>& symbols) const;
  template <typename Queue>
  void apply_long(std::vector<TokenId>& symbols) const;

  std::vector<std::pair<std::uint64_t, Merge>> table_;  // open addressing by (left, right)
  std::uint64_t mask_ = 0;
};

// Ids of recurring short pieces. Each thread caches for the vocabulary that it used last; serial_ tells them apart.
class PieceCache {
 public:
  PieceCache();
  // Appends the ids of the piece; false if it is not cached, or too long to be cached.
  bool find(std::string_view piece, std::vector<TokenId>& ids) const;
  void keep(std::string_view piece, const TokenId* begin, const TokenId* end) const;

 private:
  std::uint64_t serial_;
};

// Finds where a text without white space may be cut before U+2581 (SentencePiece's visible space) without losing a
// merge: after a character that precedes the mark in no token. So a text that is one piece is encoded word by word.
class WordCuts {
 public:
  void see(std::string_view token);
  // Calls word(part) for the parts of the text, in order.
  template <typename Word>
  void each(std::string_view text, const Word& word) const {
    std::size_t begin = 0;
    for (std::size_t at = text.find(kMark, 1); at != std::string_view::npos; at = text.find(kMark, at + 1)) {
      if (joined(text, at)) continue;
      word(text.substr(begin, at - begin));
      begin = at;
    }
    if (begin < text.size()) word(text.substr(begin));
  }

 private:
  static constexpr std::string_view kMark = "\xE2\x96\x81";
  bool joined(std::string_view text, std::size_t at) const;
  std::unordered_map<std::string, bool> before_;  // characters that precede the mark in some token
};

}  // namespace magister
