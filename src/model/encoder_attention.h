// Attention of encoders in plain ATen code, the same on CPUs and GPUs: every token attends to every other, and DeBERTa
// adds products with relative position vectors. A sequence of 512 tokens has 262,144 scores a head.
// Legend: L tokens of a sequence, E numbers of a head, N relative position vectors. A dot stands for the heads of a
// call, or for none.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "magister/model/model_config.h"

namespace magister {

// Numbers of the relative position vectors, i64, for each of these distances from key to query, i64. On the CPU.
at::Tensor vectors_of(const EncoderConfig& encoder, const at::Tensor& distance);
// The same for query i and key j of a sequence, [L, L] i64; undefined: the model has no such vectors. On the CPU.
at::Tensor vectors_between(const EncoderConfig& encoder, std::int64_t length);

// The factor of scores: one over the root of E for each kind of product that a score adds.
double attention_scale(const EncoderConfig& encoder, std::int64_t E);

// Heads of one sequence.
struct EncoderHeads {
  at::Tensor q_LE, k_LE, v_LE;              // [., L, E]
  at::Tensor distance_q_NE, distance_k_NE;  // [., N, E]: the relative position vectors as queries and as keys
};

// [., L, E]. vectors_LL: from vectors_between() for at least L tokens, on the device of the heads.
at::Tensor encoder_attention(const EncoderConfig& encoder, const EncoderHeads& heads, const at::Tensor& vectors_LL);

}  // namespace magister
