// PassShape, PassLimits: the size of a task's forward passes, from its keys and its device.
#pragma once

#include <cstdint>

namespace magister {

// The size of a task's forward passes, from its keys alone.
struct PassShape {
  std::uint64_t tokens = 0;           // most tokens in one pass
  std::uint64_t sequence_tokens = 0;  // the longest sequence whose keys and values are kept; 0: none
  std::uint64_t row_bytes = 0;        // results waiting to be written
  std::uint64_t sampled_rows = 0;  // most rows of logits of the whole vocabulary, for the texts that a pass continues
};

// Limits for tasks that generate; 0: not set (`auto`). They do not change any text.
struct PassLimits {
  std::uint64_t sequences = 0;  // sequences that are generated or wait for their row
  std::uint64_t tokens = 0;     // tokens of a forward pass
  // Takes the values that are not set from `other`.
  PassLimits or_else(const PassLimits& other) const {
    return {.sequences = sequences != 0 ? sequences : other.sequences, .tokens = tokens != 0 ? tokens : other.tokens};
  }
};
// Defaults for a GPU: 8,192 tokens are several times the number that hides reading the weights and starting the
// kernels, and 256 texts share one read of the weights. A CPU reaches its full speed with a few rows, so it leaves both
// values to the task.
inline constexpr PassLimits kGpuPassLimits{.sequences = 256, .tokens = 8192};

}  // namespace magister
