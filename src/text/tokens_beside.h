// What the files beside a vocabulary say of its tokens, as transformers 5 reads them.
// Source: transformers 5.23 tokenization_utils_base.py (_from_pretrained) and tokenization_utils_tokenizers.py.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/tokenizer_model.h"

namespace magister {

struct TokensBeside {
  std::vector<AddedToken> added;                             // to be added to the vocabulary's own, in this order
  std::vector<std::pair<std::string, std::string>> special;  // bos_token, pad_token, ... and their texts
  std::optional<bool> add_prefix_space;                      // where the tokenizer's class takes it from there
  std::vector<std::pair<TokenId, std::string>> by_id;        // added_tokens_decoder
  std::string tokenizer_class;                               // without "Fast"; empty: not named
  bool legacy = false;                                       // of Llama's class: text behind a token begins like a text
};

// tokenizer_json: the file's content, null where the vocabulary is of another kind. added_tokens_decoder of tokenizer_config.json rules; where
// it has none special_tokens_map.json goes over its keys, and added_tokens.json names tokens, too. Throws Error(kData) naming the file.
TokensBeside read_tokens_beside(const FilesBeside& files, const nlohmann::json* tokenizer_json);

// For vocabularies to which nothing can be added: which ids further tokens would have hangs on the reader. Takes the named tokens into the
// model; throws Error(kData) where the files name a token that the model does not have, or under another id.
void take_named_tokens(const FilesBeside& files, Tokenizer::Model& model);

}  // namespace magister
