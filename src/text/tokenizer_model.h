// The contents of a tokenizer file in any format: filled by the readers, used by Tokenizer.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "magister/text/tokenizer.h"
#include "text/decoder.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/token_model.h"

namespace magister {

struct AddedToken {
  TokenId id = -1;
  std::string content;
  bool single_word = false, lstrip = false, rstrip = false, normalized = false, special = false;
  // The text is taken literally, even with characters that mean bytes elsewhere (llama.cpp, not Hugging Face).
  bool literal = false;
  std::string searched;  // the text to search for: the content, normalised if `normalized`; see finish()
};

struct Tokenizer::Model {
  std::string source;
  std::string sha256;
  std::string rules_sha256;  // empty: same as sha256, which is of a canonical form
  Vocabulary vocab;          // without the added tokens
  std::unique_ptr<TokenModel> words;
  NormalizerPtr normalizer;  // null: texts stay as they are
  // A space before a text, if the normalizer adds none: in front of the text, or of every part between added tokens. No
  // space is added where one is.
  enum class Blank { kNone, kFirst, kAlways } blank = Blank::kNone;
  PreTokenizerPtr pre_tokenizer;     // null: the whole text is one piece
  bool pieces_in_stand_ins = false;  // the model reads byte characters: pieces are written in them first
  // How tokens become text. kBytes: the tokens' bytes are joined. kSteps: the decoder decides; if null, tokens are
  // joined by spaces.
  enum class Decoding { kBytes, kSteps } decoding = Decoding::kSteps;
  bool tokens_are_bytes = false;  // kBytes: tokens are written as raw bytes (tiktoken), otherwise in byte characters
  DecodeStepPtr decoder;
  std::vector<AddedToken> added;
  std::vector<TokenId> prefix, suffix;                              // from the post-processor
  std::vector<std::pair<std::string, std::string>> special_tokens;  // see Tokenizer::special_tokens()
  std::int64_t own_size = -1;  // see Tokenizer::own_size(); -1: no file next to the vocabulary names a token
  // Built by finish():
  std::vector<std::string> text_of_id;   // as written in the file
  std::vector<std::string> bytes_of_id;  // bytes that a token adds in the middle of a text
  std::vector<bool> known_id;            // a token has this id
  bool has(TokenId id) const {
    return id >= 0 && static_cast<std::size_t>(id) < known_id.size() && known_id[static_cast<std::size_t>(id)];
  }
  std::unordered_map<std::string, TokenId> id_of_text;
  std::vector<bool> special_id;
  std::vector<std::vector<std::size_t>> added_by_first_byte[2];  // [normalized][byte] -> indices, longest first

  // Checks ids against each other and builds the look-up tables. Throws Error(kData).
  void finish();

 private:
  void place_tokens();
  void place_added();
};

}  // namespace magister
