// The keys of `task: generate`. configs/README.md lists each with default and range; keep the two in step.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "magister/core/config.h"
#include "magister/core/types.h"
#include "magister/engine/sampler.h"
#include "magister/io/dataset.h"
#include "magister/tasks/experiment_config.h"

namespace magister {

class Task;

struct GenerateConfig {
  std::string name = "answers";
  ModelSection model;                     // the task's own or the experiment's
  DatasetConfig dataset;                  // with slice
  std::uint64_t seed = 0;                 // the experiment's
  std::uint64_t max_prompt_length = 2048; // tokens; a longer prompt is refused
  std::uint64_t max_new_tokens = 256;
  std::uint64_t n = 1;                    // texts a record
  SamplingParams sampling;
  std::vector<std::string> stop;          // texts that end a text; they stay in the tokens and leave the text
  std::vector<TokenId> stop_tokens;       // besides the model's own end tokens
  bool ignore_eos = false;                // write on after the model's end tokens
  std::uint64_t max_sequences = 32;       // written at the same time
  std::uint64_t token_budget = 512;       // tokens of a forward pass
  bool share_prefixes = true;
};

GenerateConfig read_generate_config(ConfigNode& node, const ExperimentConfig& experiment);
// Implemented with the task itself (src/tasks/generate.cpp).
std::unique_ptr<Task> make_generate(GenerateConfig config);

}  // namespace magister
