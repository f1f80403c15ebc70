// The rules of a model's generation_config.json in addition to the tokens that end a text. Bans, limits and forced
// tokens belong to the model and apply wherever it writes texts; how to sample is decided by the task's keys.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "magister/engine/model_rules.h"

namespace magister {

struct GenerationConfig {
  ModelRules rules;                 // without end tokens
  std::vector<std::string> obeyed;  // keys that became rules
  // "temperature 0.6": keys about sampling, which the task's keys decide.
  std::vector<std::string> not_taken;
  std::vector<std::string> not_computed;  // keys that change texts in transformers but not here
  // "kept to: ...; not taken, since the task's keys decide how to sample: ..."; empty: there is nothing to say.
  std::string describe() const;
};

// Reads the file in a model's folder; empty if there is none. Keys whose values change nothing in transformers are in
// none of the lists. Throws Error(kData) that names file and key for text that is not JSON, a value of another type, or
// a token from table_rows, the rows of the embeddings, on. Bans and biases of tokens from vocab_size on, for which the
// head has no outputs, are left out. Local.
GenerationConfig read_generation_config(const std::string& model_folder, std::int64_t vocab_size,
                                        std::int64_t table_rows);

}  // namespace magister
