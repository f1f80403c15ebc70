// Unigram: the most probable split of a text into tokens, by Viterbi over all tokens that begin at each character.
// Source: Kudo, arXiv 1804.10959; huggingface/tokenizers models/unigram; google/sentencepiece unigram_model.cc
// (EncodeOptimized).
#pragma once

#include <array>
#include <cstdint>

#include "text/merge_table.h"
#include "text/token_model.h"

namespace magister {

// Trie of byte strings: finds those that a text begins with.
class Trie {
 public:
  void add(std::string_view text, std::int32_t value);
  void freeze();  // call after the last add() and before the first walk()
  // Calls found(length, value) for every entry that the text begins with, shortest first.
  template <typename Found>
  void walk(std::string_view text, const Found& found) const {
    std::uint32_t node = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      node = child(node, static_cast<unsigned char>(text[i]));
      if (node == 0) return;
      if (nodes_[node].value >= 0) found(i + 1, nodes_[node].value);
    }
  }

 private:
  struct Node {
    std::int32_t value = -1;
    std::uint32_t first = 0;  // index of its first child in edges_
    std::uint16_t count = 0;
  };
  std::uint32_t child(std::uint32_t node, unsigned char byte) const;

  std::vector<std::pair<std::string, std::int32_t>> entries_;
  std::vector<Node> nodes_;
  std::vector<std::pair<unsigned char, std::uint32_t>> edges_;
  std::array<std::uint32_t, 256> roots_{};
};

struct UnigramToken {
  std::string text;
  TokenId id = -1;
  double score = 0;
};

class Unigram final : public TokenModel {
 public:
  struct Rules {
    TokenId unknown = -1;  // -1: texts with unknown characters are refused
    double unknown_score = 0;
    // Sums of scores are float, as in SentencePiece since 0.2.2, and restart beyond 100,000, as there, so that long
    // texts lose no digits. (Up to 0.2.1 sums were compared as double before they were rounded, which ranks equal
    // pieces differently.) Otherwise double.
    bool single_precision = false;
    bool byte_fallback = false;
    bool look_up_fused = true;            // adjacent unknown characters are looked up together (the reference)
    std::array<TokenId, 256> byte_ids{};  // <0xNN>, or -1
  };
  Unigram(const std::vector<UnigramToken>& tokens, Rules rules, std::string source);

  void encode(std::string_view piece, std::vector<TokenId>& ids) const override;

 private:
  void give_unknown(std::string_view text, std::vector<TokenId>& ids) const;
  void encode_word(std::string_view piece, std::vector<TokenId>& ids) const;

  Rules rules_;
  std::string source_;
  PieceCache cache_;
  Trie trie_;
  std::vector<UnigramToken> tokens_;
  Vocabulary ids_;
};

}  // namespace magister
