// The meaning of a tokenizer.json, apart from how it is written: two files with the same rules give every text the same
// ids, and every id the same token.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "text/tokenizer_model.h"

namespace magister {

// Returns the SHA-256 in hex of vocabulary, merges or scores, normalizer, pre-tokenizer and added tokens. It ignores
// the order of keys, explicit defaults, white space, the two spellings of merges, truncation, padding, the
// post-processor (it adds BOS and EOS and changes no id's meaning) and the decoder. content: the file's, already read
// into `model`, with the added tokens of the files next to it. add_prefix_space: the value for ByteLevel if a file next
// to it overrides it.
std::string sha256_of_rules(const nlohmann::json& content, const Tokenizer::Model& model,
                            std::optional<bool> add_prefix_space);

}  // namespace magister
