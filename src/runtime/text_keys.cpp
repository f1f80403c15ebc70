// See text_keys.h.
#include "magister/runtime/text_keys.h"

namespace magister {

PassLimits BatchKeys::limits(const PassLimits& device) const {
  return PassLimits{.sequences = max_sequences, .tokens = token_budget}.or_else(device).or_else(
      {.sequences = 32, .tokens = usual_budget});
}

TextLengths read_text_lengths(ConfigNode& node) {
  TextLengths lengths;
  lengths.length_place = node.place("max_prompt_length");
  lengths.max_prompt_length = LengthKey(node, "max_prompt_length", 2048, 1, 1 << 24);
  lengths.max_new_tokens = LengthKey(node, "max_new_tokens", 256, 1, 1 << 20);
  return lengths;
}

BatchKeys read_batch_keys(ConfigNode& node, std::uint64_t usual_budget) {
  BatchKeys keys;
  keys.max_sequences = static_cast<std::uint64_t>(node.integer_or_auto("max_sequences", 1, 4096).value_or(0));
  keys.token_budget = static_cast<std::uint64_t>(node.integer_or_auto("token_budget", 1, 1 << 20).value_or(0));
  keys.share_prefixes = node.boolean("share_prefixes", true);
  keys.usual_budget = usual_budget;
  return keys;
}

PassShape text_pass(const TextLengths& lengths, const PassLimits& limits) {
  return {.tokens = limits.tokens, .sequence_tokens = lengths.longest_text(), .sampled_rows = limits.sequences};
}

}  // namespace magister
