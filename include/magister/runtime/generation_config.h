// What a model's generation_config.json says beside the tokens that end a text. Bans, limits and forced tokens are the model's own and are kept to
// wherever texts are written; how a task samples is the task's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "magister/engine/model_rules.h"

namespace magister {

struct GenerationConfig {
  ModelRules rules;                       // without end tokens
  std::vector<std::string> obeyed;        // keys that made the rules
  std::vector<std::string> not_taken;     // "temperature 0.6": how to sample, which a task's keys say
  std::vector<std::string> not_computed;  // keys that change texts in transformers, and here do not
  // "obeyed: ...; not taken, for the task's keys say it: ..."; empty where there is nothing to say.
  std::string describe() const;
};

// Of a folder; nothing where it has no such file. What changes nothing in transformers is in none of the lists. Throws Error(kData) naming file
// and key for what is no JSON, of another type, or a token that the vocabulary does not have. Local.
GenerationConfig read_generation_config(const std::string& model_folder, std::int64_t vocab_size);

}  // namespace magister
