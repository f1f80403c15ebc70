// What a tokenizer file says, whichever its format: filled by the readers, used by Tokenizer.
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
  bool literal =
      false;  // its text stands for itself, even in letters that stand for bytes elsewhere (llama.cpp, not Hugging Face)
  std::string searched;  // what is looked for in the text: the content, normalised if `normalized`; see finish()
};

struct Tokenizer::Model {
  std::string source;
  std::string sha256;
  std::string rules_sha256;  // empty: sha256, which is of a canonical form
  Vocabulary vocab;          // without the added tokens
  std::unique_ptr<TokenModel> words;
  NormalizerPtr normalizer;  // null: texts stay as they are
  // The blank before a text, where the normalizer puts none: in front of the text, or of every part between added tokens, unless
  // it begins with one.
  enum class Blank { kNone, kFirst, kAlways } blank = Blank::kNone;
  PreTokenizerPtr pre_tokenizer;     // null: a text is one piece
  bool pieces_in_stand_ins = false;  // the model reads byte stand-ins: pieces are written in them first
  // How tokens become text. kBytes: the tokens' bytes, one after the other. kSteps: the decoder's; null: spaces between.
  enum class Decoding { kBytes, kSteps } decoding = Decoding::kSteps;
  bool tokens_are_bytes = false;  // with kBytes: tokens are written as raw bytes (tiktoken), otherwise in stand-ins
  DecodeStepPtr decoder;
  std::vector<AddedToken> added;
  std::vector<TokenId> prefix, suffix;                              // of the post-processor
  std::vector<std::pair<std::string, std::string>> special_tokens;  // see Tokenizer::special_tokens()
  std::int64_t own_size = -1;  // see Tokenizer::own_size(); -1: no file beside the vocabulary names a token
  // Built by finish():
  std::vector<std::string> text_of_id;   // as the file writes it
  std::vector<std::string> bytes_of_id;  // what a token adds in the middle of a text
  std::vector<bool> known_id;            // some token has it
  bool has(TokenId id) const {
    return id >= 0 && static_cast<std::size_t>(id) < known_id.size() && known_id[static_cast<std::size_t>(id)];
  }
  std::unordered_map<std::string, TokenId> id_of_text;
  std::vector<bool> special_id;
  std::vector<std::vector<std::size_t>> added_by_first_byte[2];  // [normalized][byte] -> indices, longest first

  // Checks ids against each other and builds the look-ups. Throws Error(kData).
  void finish();

 private:
  void place_tokens();
  void place_added();
};

}  // namespace magister
