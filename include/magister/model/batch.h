// Plain structs that cross modules: PackedBatch goes into the model, ReducedLogits comes out of the engine.
// Shapes: T packed tokens, S sequences, k kept entries.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace magister {

// Sequences one after the other, no padding. Lengths 2, 3, 4 give cu_seqlens [0, 2, 5, 9].
struct PackedBatch {
  at::Tensor token_ids_T;                // i32, CPU
  at::Tensor positions_T;                // i32, CPU: past, past + 1, ... in each sequence
  std::vector<std::int64_t> cu_seqlens;  // S + 1
  std::vector<std::int64_t> past_S{};    // tokens of each sequence that stand in a KV cache; empty: none anywhere
  // Of passes without a cache: the earlier sequence, whole in this batch, that the past_S first tokens are also of; itself where past_S is 0.
  // Sequences of one prefix have one past_S and stand behind each other. Empty: nothing is shared.
  std::vector<std::int64_t> prefix_of_S{};
  // Sequences with a cache whose one row is of a text that is being written, not of its prompt: on a GPU these go through other
  // kernels, so it must not depend on how prompts are cut. Empty: none.
  std::vector<std::uint8_t> is_decode_S{};
  // Ids that were drawn on the device and have not come to the host, i32 [T] there, in place of token_ids_T; of passes in which all rows are of
  // texts (Transformer::takes_drawn_ids). Undefined: none.
  at::Tensor drawn_ids_T{};
  std::int64_t past(std::int64_t sequence) const {
    return past_S.empty() ? 0 : past_S[static_cast<std::size_t>(sequence)];
  }
  std::int64_t num_tokens() const { return cu_seqlens.empty() ? 0 : cu_seqlens.back(); }
  std::int64_t num_sequences() const { return static_cast<std::int64_t>(cu_seqlens.size()) - 1; }
};

// What is kept of the distribution of the next token, a row per packed token. CPU, replicated over the group.
struct ReducedLogits {
  at::Tensor top_id_Tk;         // i32, best first; ties: lower id first
  at::Tensor top_logprob_Tk;    // f32, nats, over the whole vocabulary
  at::Tensor logsumexp_T;       // f32, of the raw logits
  at::Tensor target_logprob_T;  // f32, of the token that follows; NaN in a sequence's last row
  at::Tensor entropy_T;         // f32, nats, of the whole distribution
  at::Tensor tail_mass_T;       // f32, 1 - sum of the kept probabilities
};

}  // namespace magister
