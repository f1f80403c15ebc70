// Tokens that the files next to a vocabulary name, read as transformers 5 reads them.
// Source: transformers 5.24 tokenization_utils_base.py (_from_pretrained) and tokenization_utils_tokenizers.py.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/tokenizer_model.h"

namespace magister {

struct NamedTokens {
  std::vector<AddedToken> added;                             // to add to the vocabulary's own, in this order
  std::vector<std::pair<std::string, std::string>> special;  // bos_token, pad_token, ... and their texts
  std::optional<bool> add_prefix_space;  // set if the tokenizer's class takes it from tokenizer_config.json
  std::vector<std::pair<TokenId, std::string>> by_id;  // tokens with the ids that the files give them
  std::string ids_are_of;                              // what gives these ids, for messages
  std::string tokenizer_class;                         // without "Fast"; empty: not given
  bool legacy = false;  // Llama's class: text after a token is read like the start of a text
};

// tokenizer_json: the file's content; null for a vocabulary of another kind. If tokenizer_config.json has
// added_tokens_decoder, it decides; else special_tokens_map.json overrides its keys, and added_tokens.json names tokens
// too. Throws Error(kData) naming the file.
NamedTokens read_named_tokens(const TokenizerConfigFiles& files, const nlohmann::json* tokenizer_json);

// For vocabularies that nothing can be added to, because the ids of further tokens depend on the reader. Copies the
// named tokens into the model; throws Error(kData) if the files name a token that the model lacks or has under another
// id.
void take_named_tokens(const TokenizerConfigFiles& files, Tokenizer::Model& model);

}  // namespace magister
