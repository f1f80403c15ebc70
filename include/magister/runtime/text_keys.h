// Keys of every task that asks the generator for texts: how long a text is, and how much goes into a pass.
#pragma once

#include <cstdint>
#include <string>

#include "magister/core/config.h"
#include "magister/runtime/length_key.h"
#include "magister/runtime/pass_shape.h"

namespace magister {

struct TextLengths {
  LengthKey max_prompt_length;  // tokens; a longer prompt is refused
  LengthKey max_new_tokens;
  std::string length_place;  // of max_prompt_length: file:line:column and key

  // Tokens of prompt and text together.
  std::uint64_t longest_text() const { return max_prompt_length.tokens() + max_new_tokens.tokens(); }
};

// The sequences and tokens that the engine takes at once. They change no text.
struct BatchKeys {
  std::uint64_t max_sequences = 0;   // written at the same time; 0: auto
  std::uint64_t token_budget = 0;    // tokens of a forward pass; 0: auto
  bool share_prefixes = true;        // prompts with the same beginning share its keys and values
  std::uint64_t usual_budget = 512;  // token_budget of a device without a preference

  // What is written, else what the device prefers, else what is usual.
  PassLimits limits(const PassLimits& device) const;
};

// max_prompt_length and max_new_tokens.
TextLengths read_text_lengths(ConfigNode& node);
// max_sequences, token_budget and share_prefixes.
BatchKeys read_batch_keys(ConfigNode& node, std::uint64_t usual_budget);

// The forward passes of such a task.
PassShape text_pass(const TextLengths& lengths, const PassLimits& limits);

// A config with these keys, as it is computed on this device: limits where it says `auto`.
template <typename Config>
Config without_auto(Config config, const PassLimits& device) {
  const PassLimits limits = config.limits(device);
  config.max_sequences = limits.sequences;
  config.token_budget = limits.tokens;
  return config;
}

}  // namespace magister
