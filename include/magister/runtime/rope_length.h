// Dynamic rotary scaling and LongRoPE make the frequencies from a text's length. A text whose keys stay in a cache
// while it grows needs frequencies that do not change, and results may depend neither on the other texts of a pass nor
// on the order of passes. So every text of a task that writes has the frequencies of one length, which is known before
// the run: that of the longest text that the task allows, or model.rope_length. vLLM does the same with its
// max_model_len.
#pragma once

#include <cstdint>
#include <string>

#include "magister/model/model_config.h"

namespace magister {

// True if the frequencies of long texts depend on their length.
bool rope_has_length(const ModelConfig& config);
// Gives all texts the frequencies of a text with this number of tokens. Does nothing for models of other frequencies.
// LongRoPE has two lists of factors: only whether the length is above the original positions matters.
void fix_rope_length(ModelConfig& config, std::uint64_t length);
// The fixed frequencies in words, for users; empty: each text has those of its own length.
std::string describe_rope_length(const ModelConfig& config);

}  // namespace magister
