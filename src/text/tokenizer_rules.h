// What a tokenizer.json means, apart from how it is written: two files with the same rules give every text the same ids, and every id the
// same token.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "text/tokenizer_model.h"

namespace magister {

// sha256 in hex of vocabulary, merges or scores, normalizer, pre-tokenizer and added tokens. Not of the order of keys, defaults that are
// written or not, white space, the two spellings of merges, truncation and padding; nor of the post-processor, which adds BOS and EOS and
// changes no id's meaning, nor of the decoder. content: the file's, already read into `model`, with the added tokens of the files beside it.
// add_prefix_space: of ByteLevel where a file beside it overrules it.
std::string sha256_of_rules(const nlohmann::json& content, const Tokenizer::Model& model,
                            std::optional<bool> add_prefix_space);

}  // namespace magister
