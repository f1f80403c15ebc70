// Attention of encoders in plain ATen code, the same on CPUs and GPUs: every token attends to every other, and DeBERTa
// adds products with relative position vectors. A sequence of 512 tokens has 262,144 scores a head.
// Legend: L tokens of a sequence, E numbers of a head, N relative position vectors. A dot stands for the heads of a
// call, or for none.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "magister/model/model_config.h"

namespace magister {

// The relative position vector for query i and key j, [L, L] i64, for sequences of up to L tokens; undefined: the model
// has none.
struct EncoderDistances {
  at::Tensor content_to_position_LL, position_to_content_LL;
};
// On the CPU.
EncoderDistances encoder_distances(const EncoderConfig& encoder, std::int64_t length);

// Heads of one sequence.
struct EncoderHeads {
  at::Tensor q_LE, k_LE, v_LE;              // [., L, E]
  at::Tensor distance_q_NE, distance_k_NE;  // [., N, E]: the relative position vectors as queries and as keys
};

// [., L, E]. distances: on the device of the heads, for at least L tokens.
at::Tensor encoder_attention(const EncoderConfig& encoder, const EncoderHeads& heads,
                             const EncoderDistances& distances);

}  // namespace magister
