// Byte-pair encoding by a list of merges: a piece becomes token ids by merging the neighbours of lowest rank first.
// Symbols are characters or, in byte-level vocabularies, bytes; their tokens are written in byte characters.
// Source: huggingface/tokenizers models/bpe (unknown characters, byte fallback, prefix and suffix of words).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/merge_table.h"
#include "text/token_model.h"

namespace magister {

// The printable character of each byte in byte-level vocabularies ("Ġ" for a space), in UTF-8.
const std::array<std::string, 256>& byte_characters();
// Decodes a token's byte characters into bytes; false if a character is not one of them.
bool bytes_of_token(std::string_view token, std::string& bytes);
// "<0x0A>": the token of a byte, for characters without a token.
std::string byte_token(unsigned char byte);

struct BpeRules {
  bool reads_bytes = true;  // pieces are bytes, tokens are written in byte characters; otherwise both are text
  bool ignore_merges = false, fuse_unknown = false, byte_fallback = false;
  bool keep_first = false;      // the first of two equal merges wins (llama.cpp); in the reference the last
  bool newlines_whole = false;  // a piece of newlines that is a token becomes that token (Gemma 4 in GGUF)
  TokenId unknown = -1;         // -1: unknown characters are dropped
  std::string prefix, suffix;   // prefix of symbols that do not begin a piece, suffix of a piece's last symbol
};

class Bpe final : public TokenModel {
 public:
  // merges: pairs of token texts, best first. Throws Error(kData) with `source`.
  Bpe(const Vocabulary& vocab, const std::vector<std::pair<std::string, std::string>>& merges, BpeRules rules,
      const std::string& source);

  void encode(std::string_view piece, std::vector<TokenId>& ids) const override;

 private:
  void read_merges(const Vocabulary& vocab, const std::vector<std::pair<std::string, std::string>>& merges,
                   const std::string& source);
  void encode_word(std::string_view piece, std::vector<TokenId>& ids) const;
  void symbols_of(std::string_view piece, std::vector<TokenId>& symbols) const;
  TokenId symbol(std::string_view character, bool first, bool last) const;

  BpeRules rules_;
  MergeTable merges_;
  PieceCache cache_;
  WordCuts cuts_;
  bool cut_words_ = false;
  std::array<TokenId, 256> byte_ids_{};  // of the byte itself or of its <0xNN>; -1: no such token
  std::vector<TokenId> character_ids_;   // by code point, if rules_.reads_bytes is false
  Vocabulary affixed_;                   // whole symbols, only with a prefix or a suffix
  Vocabulary whole_;                     // pieces that are tokens, if a rule needs them
};

}  // namespace magister
