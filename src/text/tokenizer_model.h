// What a tokenizer file says, whichever its format: filled by the two readers, used by Tokenizer.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "magister/text/tokenizer.h"
#include "text/bpe.h"
#include "text/pre_tokenizer.h"

namespace magister {

struct AddedToken {
  TokenId id = -1;
  std::string content;
  bool single_word = false, lstrip = false, rstrip = false, normalized = false, special = false;
};

struct Tokenizer::Model {
  std::string source;
  std::string sha256;
  std::unique_ptr<Bpe> bpe;
  std::unique_ptr<PreTokenizer> pre_tokenizer;  // null: a text is one piece
  bool add_prefix_space = false;
  bool nfc = false;
  std::vector<AddedToken> added;
  std::vector<TokenId> prefix, suffix;  // of the post-processor
  // Built by finish():
  std::vector<std::string> bytes_of_id;  // decoded bytes; added tokens: their text
  std::unordered_map<std::string, TokenId> id_of_text;
  std::vector<bool> special_id;
  std::vector<std::vector<std::size_t>> added_by_first_byte[2];  // [normalized][byte] -> indices, longest first

  // Checks ids against each other and builds the look-ups. Throws Error(kData).
  void finish();
};

}  // namespace magister
