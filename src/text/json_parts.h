// Readers for the parts of a tokenizer.json; each part is read or refused by name.
#pragma once

#include <optional>

#include "text/json_node.h"
#include "text/tokenizer_model.h"

namespace magister {

NormalizerPtr read_json_normalizer(const JsonNode& node);

struct JsonPreTokenizer {
  std::vector<PreTokenizerPtr> steps;
  bool byte_level = false;
  std::optional<bool> add_prefix_space;  // overrides ByteLevel's key in the file
  bool overruled = false;                // the file has another value
};
void read_json_pre_tokenizer(const JsonNode& node, JsonPreTokenizer& into);

// Sets model.decoding and model.decoder.
void read_json_decoder(const JsonNode& node, Tokenizer::Model& model);

// Sets model.vocab, words and pieces_in_stand_ins. byte_level: pieces are bytes.
void read_json_model(const JsonNode& node, bool byte_level, Tokenizer::Model& model);

SplitBehavior read_split_behavior(const JsonNode& node);

}  // namespace magister
