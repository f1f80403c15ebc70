// Rotary position embedding: inverse frequencies and tables of cosines and sines, in transformers' order of float32
// operations (frequency in f32, angle = position * frequency in f32), so that long positions agree to the last bits.
// Sources: Su et al. arXiv 2104.09864; NTK scaling, llama3 scaling and LongRoPE (arXiv 2402.13753) as transformers' ROPE_INIT_FUNCTIONS define them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "magister/model/model_config.h"

namespace magister {

// A model has one or two rotary embeddings: ModelConfig::rope and, as number 1, sliding_rope.
inline std::size_t num_rope_tables(const ModelConfig& config) { return config.sliding_rope ? 2 : 1; }
inline const RopeConfig& rope_of(const ModelConfig& config, std::size_t table) {
  return table == 0 ? config.rope : *config.sliding_rope;
}

// [R/2] f32, R = rotary_dim. sequence_length matters for dynamic scaling and longrope only, and there only above
// positions_of_shared_rope().
at::Tensor rope_inverse_frequencies(const ModelConfig& config, std::int64_t sequence_length, std::size_t table = 0);

// Longest sequence that shares the table of rope_table(config, 0, longest); of dynamic scaling what the model was trained for, of
// longrope what it was trained for at first, of others any.
std::int64_t positions_of_shared_rope(const ModelConfig& config);
bool rope_needs_own_table(const ModelConfig& config, std::int64_t sequence_length);

struct RopeTable {
  at::Tensor cos_PE2, sin_PE2;  // [positions, R/2] f32, contiguous
};
// Rows for positions 0 .. num_positions - 1 of a sequence of sequence_length tokens.
RopeTable rope_table(const ModelConfig& config, std::int64_t sequence_length, std::int64_t num_positions,
                     std::size_t table = 0);

}  // namespace magister
