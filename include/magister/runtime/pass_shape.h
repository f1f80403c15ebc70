// PassShape, PassLimits: how large the forward passes of a task are, from its keys and its device.
#pragma once

#include <cstdint>

namespace magister {

// What a forward pass of a task works on, from its keys alone.
struct PassShape {
  std::uint64_t tokens = 0;           // at most, in one pass
  std::uint64_t sequence_tokens = 0;  // of the longest sequence whose keys and values are kept; 0: none are
  std::uint64_t row_bytes = 0;        // results waiting to be written
  std::uint64_t sampled_rows = 0;  // of logits of the whole vocabulary, at most, of the texts that a pass goes on with
};

// What the generator's tasks take at once; 0: not said (`auto`). None of it changes a text.
struct PassLimits {
  std::uint64_t sequences = 0;  // that write or wait for their row
  std::uint64_t tokens = 0;     // of a forward pass
  // This, and what it does not say from the other.
  PassLimits or_else(const PassLimits& other) const {
    return {.sequences = sequences != 0 ? sequences : other.sequences, .tokens = tokens != 0 ? tokens : other.tokens};
  }
};
// For a GPU: 8,192 tokens are several times what hides the reading of the weights and the start of the kernels, and 256 texts read them
// once for all. A CPU computes as fast as it reads with a few rows, so it leaves both to the task.
inline constexpr PassLimits kGpuPassLimits{.sequences = 256, .tokens = 8192};

}  // namespace magister
