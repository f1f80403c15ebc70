// Plain structs that cross modules: PackedBatch is the model's input, ReducedLogits is the engine's output.
// Shapes: T packed tokens, S sequences, k kept entries.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace magister {

// Sequences one after the other, without padding. Sequences of 2, 3 and 4 tokens give cu_seqlens [0, 2, 5, 9].
struct PackedBatch {
  at::Tensor token_ids_T;                // i32, CPU
  at::Tensor positions_T;                // i32, CPU: past, past + 1, ... in each sequence
  std::vector<std::int64_t> cu_seqlens;  // S + 1
  // tokens of each sequence that a KV cache holds already; empty: none in any sequence
  std::vector<std::int64_t> past_S{};
  // Only in passes without a cache: the earlier sequence of this batch whose first past_S tokens this sequence shares.
  // That sequence is in the batch as a whole. A sequence with past_S 0 names itself. Sequences that share a prefix have
  // the same past_S and follow each other. Empty: no sequence shares a prefix.
  std::vector<std::int64_t> prefix_of_S{};
  // 1 for a sequence with a cache whose rows are decoding steps, 0 for rows of a prompt. Decoding rows go through other
  // kernels on a GPU, and on a CPU if weights have codes, so this flag must not depend on how prompts are cut into
  // passes. Empty: no decoding rows.
  std::vector<std::uint8_t> is_decode_S{};
  // Token ids that were sampled on the device and are not yet on the host: i32 [T], on the device. They replace
  // token_ids_T in passes that consist of decoding rows only (Transformer::takes_drawn_ids). Undefined: token_ids_T
  // holds the ids.
  at::Tensor drawn_ids_T{};
  // Packed rows whose hidden states are read, ascending, equal on all shards of a group: a pass returns these alone, in
  // this order, with the bits that they have among all. Of the other rows the last layer computes only keys and values.
  // Not set: all rows are read.
  std::optional<std::vector<std::int64_t>> read_rows{};
  std::int64_t past(std::int64_t sequence) const {
    return past_S.empty() ? 0 : past_S[static_cast<std::size_t>(sequence)];
  }
  std::int64_t num_tokens() const { return cu_seqlens.empty() ? 0 : cu_seqlens.back(); }
  std::int64_t num_sequences() const { return static_cast<std::int64_t>(cu_seqlens.size()) - 1; }
};

// The part of the next token's distribution that is kept, one row per packed token. CPU, replicated over the group.
struct ReducedLogits {
  at::Tensor top_id_Tk;         // i32, most probable first; ties: lower id first
  at::Tensor top_logprob_Tk;    // f32, nats, over the whole vocabulary
  at::Tensor logsumexp_T;       // f32, over the raw logits
  at::Tensor target_logprob_T;  // f32, of the token that follows; NaN in the last row of a sequence
  at::Tensor entropy_T;         // f32, nats, over the whole distribution
  at::Tensor tail_mass_T;       // f32, 1 - sum of the kept probabilities
};

}  // namespace magister
