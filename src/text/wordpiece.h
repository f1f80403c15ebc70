// WordPiece (longest token first) and WordLevel (a word is a token or it is unknown).
// Source: huggingface/tokenizers models/wordpiece and models/wordlevel; llama.cpp llama-vocab.cpp (WPM).
#pragma once

#include "text/merge_table.h"
#include "text/token_model.h"

namespace magister {

class WordPiece final : public TokenModel {
 public:
  struct Rules {
    TokenId unknown = -1;
    std::string prefix = "##";  // of tokens that continue a word
    std::size_t max_characters = 100;
  };
  WordPiece(const Vocabulary& vocab, Rules rules);
  void encode(std::string_view piece, std::vector<TokenId>& ids) const override;

 private:
  void encode_word(std::string_view piece, std::vector<TokenId>& ids) const;

  Rules rules_;
  PieceCache cache_;
  Vocabulary begins_, continues_;  // continues_: without the prefix
  std::size_t longest_ = 0;
};

class WordLevel final : public TokenModel {
 public:
  // unknown -1: a text with an unknown word is refused, with an error that names source.
  WordLevel(Vocabulary vocab, TokenId unknown, std::string source);
  void encode(std::string_view piece, std::vector<TokenId>& ids) const override;

 private:
  Vocabulary vocab_;
  TokenId unknown_;
  std::string source_;
};

}  // namespace magister
