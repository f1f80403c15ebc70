// Rotary position embedding: inverse frequencies and tables of cosines and sines, in transformers' order of float32
// operations (frequency in f32, angle = position * frequency in f32), so that long positions agree to the last bits.
// Sources: Su et al. arXiv 2104.09864; NTK scaling and llama3 scaling as transformers' ROPE_INIT_FUNCTIONS define them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "magister/model/model_config.h"

namespace magister {

// [E/2] f32. sequence_length matters for dynamic scaling only, and there only above max_position_embeddings.
at::Tensor rope_inverse_frequencies(const ModelConfig& config, std::int64_t sequence_length);

// True where a sequence of this length needs its own table (dynamic scaling, longer than the model was trained for);
// all other sequences share the table of rope_table(config, 0, longest).
bool rope_needs_own_table(const ModelConfig& config, std::int64_t sequence_length);

struct RopeTable {
  at::Tensor cos_PE2, sin_PE2;  // [positions, E/2] f32, contiguous
};
// Rows for positions 0 .. num_positions - 1 of a sequence of sequence_length tokens.
RopeTable rope_table(const ModelConfig& config, std::int64_t sequence_length, std::int64_t num_positions);

}  // namespace magister
