// Byte-level byte-pair encoding: a piece of bytes becomes token ids by merging the neighbours of lowest rank first.
// Source: Sennrich et al. arXiv 1508.07909; huggingface/tokenizers models/bpe (order of merges and ties).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "magister/core/types.h"

namespace magister {

// The printable stand-in of each byte in byte-level vocabularies ("Ġ" for a space), in UTF-8.
const std::array<std::string, 256>& byte_characters();
// Bytes of a token's text in stand-ins; false when a character is none of them.
bool bytes_of_token(std::string_view token, std::string& bytes);

class Bpe {
 public:
  // vocab: token text in stand-ins -> id. merges: pairs of token texts, best first. Throws Error(kData) with `source`.
  Bpe(std::unordered_map<std::string, TokenId> vocab, const std::vector<std::pair<std::string, std::string>>& merges,
      bool ignore_merges, const std::string& source);

  // Appends the ids of one piece. Thread-safe. O(n log n) in the piece's length.
  void encode(std::string_view piece, std::vector<TokenId>& ids) const;
  const std::unordered_map<std::string, TokenId>& vocab() const { return vocab_; }

 private:
  struct Merge {
    std::uint32_t rank = 0;
    TokenId id = -1;
  };
  const Merge* find_merge(TokenId left, TokenId right) const;
  void merge_short(std::vector<TokenId>& symbols) const;
  void merge_long(std::vector<TokenId>& symbols) const;

  std::unordered_map<std::string, TokenId> vocab_;      // stand-ins
  std::unordered_map<std::string, TokenId> whole_;      // raw bytes, with ignore_merges only
  std::array<TokenId, 256> byte_ids_{};                 // -1: the vocabulary has no token for this byte
  std::vector<std::pair<std::uint64_t, Merge>> table_;  // open addressing by (left, right)
  std::uint64_t mask_ = 0;
  std::uint64_t serial_ = 0;  // names this vocabulary in the threads' caches
};

}  // namespace magister
