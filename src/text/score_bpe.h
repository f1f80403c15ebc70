// BPE without a list of merges: any two neighbours whose joined text is a token become that token, best token first.
// SentencePiece and GGUF "llama" vocabularies rank tokens by score, tiktoken files by number.
// Source: google/sentencepiece bpe_model.cc, openai/tiktoken lib.rs.
#pragma once

#include <array>

#include "text/merge_table.h"
#include "text/token_model.h"

namespace magister {

struct RankedToken {
  std::string text;
  TokenId id = -1;
  std::uint32_t rank = 0;  // 0 is merged first; equal ranks: leftmost first
};

class ScoreBpe final : public TokenModel {
 public:
  struct Rules {
    bool reads_bytes = false;                             // symbols are bytes (tiktoken), otherwise characters
    bool whole_first = false;                             // a piece that is a token becomes that token
    bool fuse_unknown = true;                             // adjacent unknown characters become one unknown token
    TokenId unknown = -1;                                 // for characters without token or bytes; -1: dropped
    std::array<TokenId, 256> byte_ids{};                  // <0xNN>, or -1
    std::vector<std::pair<std::string, TokenId>> frozen;  // matched first, longest first, and never merged
  };
  ScoreBpe(const std::vector<RankedToken>& tokens, Rules rules);

  void encode(std::string_view piece, std::vector<TokenId>& ids) const override;

 private:
  void encode_word(std::string_view piece, std::vector<TokenId>& ids) const;
  void merge(std::string_view piece, std::vector<TokenId>& ids) const;
  void encode_free(std::string_view piece, std::vector<TokenId>& ids) const;
  TokenId symbol(std::string_view character) const;
  void give(TokenId symbol, std::vector<TokenId>& ids) const;
  std::size_t frozen_at(std::string_view text, TokenId& id) const;

  Rules rules_;
  MergeTable merges_;
  PieceCache cache_;
  WordCuts cuts_;
  bool cut_words_ = false;
  std::vector<TokenId> symbol_ids_;  // by byte or code point; -1: no token
  Vocabulary whole_, frozen_;
  std::size_t longest_frozen_ = 0;
  std::array<bool, 256> frozen_begins_{};
};

// Ranks by score: the highest score gets rank 0, equal scores get equal ranks.
std::vector<RankedToken> rank_by_score(const std::vector<std::pair<std::string, TokenId>>& tokens,
                                       const std::vector<float>& scores);

}  // namespace magister
