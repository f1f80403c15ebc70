// Byte-pair encoding by a list of merges: a piece becomes token ids by merging the neighbours of lowest rank first.
// Symbols are bytes (byte-level vocabularies, whose tokens are written in stand-ins) or characters.
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

// The printable stand-in of each byte in byte-level vocabularies ("Ġ" for a space), in UTF-8.
const std::array<std::string, 256>& byte_characters();
// Bytes of a token's text in stand-ins; false when a character is none of them.
bool bytes_of_token(std::string_view token, std::string& bytes);
// "<0x0A>": the token of a byte where characters have no token.
std::string byte_token(unsigned char byte);

struct BpeRules {
  bool reads_bytes = true;  // pieces are bytes, tokens are written in stand-ins; otherwise both are text
  bool ignore_merges = false, fuse_unknown = false, byte_fallback = false;
  bool keep_first = false;      // of two equal merges (llama.cpp); the reference keeps the last
  bool newlines_whole = false;  // a piece of newlines that is a token is that token (Gemma 4 in GGUF)
  TokenId unknown = -1;         // -1: unknown characters are dropped
  std::string prefix, suffix;   // of symbols that do not begin a piece, of a piece's last symbol
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
  std::array<TokenId, 256> byte_ids_{};  // of the byte itself, or of its <0xNN>; -1: there is none
  std::vector<TokenId> character_ids_;   // by code point, with rules_.reads_bytes false
  Vocabulary affixed_;                   // whole symbols, with a prefix or a suffix only
  Vocabulary whole_;                     // pieces that are tokens, where a rule asks for them
};

}  // namespace magister
