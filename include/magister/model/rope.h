// Rotary position embedding: inverse frequencies and tables of cosines and sines. The float32 operations have
// transformers' order (frequency in f32, angle = position * frequency in f32), so that long positions agree to the last
// bits.
// Sources: Su et al., arXiv 2104.09864; NTK scaling, llama3 scaling, YaRN (arXiv 2309.00071) and LongRoPE (arXiv
// 2402.13753) as transformers' ROPE_INIT_FUNCTIONS define them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "magister/model/model_config.h"

namespace magister {

// A model has one or two rotary embeddings: table 0 is ModelConfig::rope, table 1 is sliding_rope.
inline std::size_t num_rope_tables(const ModelConfig& config) { return config.sliding_rope ? 2 : 1; }
inline const RopeConfig& rope_of(const ModelConfig& config, std::size_t table) {
  return table == 0 ? config.rope : *config.sliding_rope;
}

// [R/2] f32, R = rotary_dim. sequence_length matters only for dynamic scaling and longrope without a fixed length, and
// only above positions_of_shared_rope().
at::Tensor rope_inverse_frequencies(const ModelConfig& config, std::int64_t sequence_length, std::size_t table = 0);

// The longest text with the frequencies that the model was first trained with. Dynamic scaling:
// max_position_embeddings; longrope: the original positions; others: no limit.
std::int64_t positions_of_first_rope(const ModelConfig& config);
// The longest sequence that may use the shared table: the same, or no limit if RopeConfig::fixed_length is set.
std::int64_t positions_of_shared_rope(const ModelConfig& config);
bool rope_needs_own_table(const ModelConfig& config, std::int64_t sequence_length);

struct RopeTable {
  at::Tensor cos_PE2, sin_PE2;  // [positions, R/2] f32, contiguous
};
// Rows for these positions (i64 [P], CPU, in any order) of a sequence of sequence_length tokens. A row's bits depend on
// its position and the sequence's length only.
RopeTable rope_rows(const ModelConfig& config, std::int64_t sequence_length, const at::Tensor& positions_P,
                    std::size_t table = 0);
// The same for positions 0 to num_positions - 1.
RopeTable rope_table(const ModelConfig& config, std::int64_t sequence_length, std::int64_t num_positions,
                     std::size_t table = 0);

// Bytes of a position's cosines and sines in all tables of the model.
std::uint64_t rope_row_bytes(const ModelConfig& config);

}  // namespace magister
