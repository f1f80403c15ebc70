// Causal attention of a packed micro-batch by a GPU's code. With bf16 every sequence goes through one call of the flash kernel for sequences of unlike
// lengths, forward and backward, on q, k and v in bf16, with KV heads as they are; f32 and what flash attention does not take go through
// ATen's scaled_dot_product_attention, sequences of one length in one call.
// On the host the flash kernel's place is taken by f32 arithmetic with the same rounding of q, k, v, the output and all gradients.
// Legend: T rows of a packed batch, S sequences, H query heads, K KV heads, E numbers of a head, Q = (H + 2K) E.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "magister/model/layer_shape.h"
#include "magister/model/rope.h"

namespace magister {

// Where the sequences of a micro-batch begin; made once for all layers.
struct SequencePlan {
  std::vector<std::int64_t> cu_seqlens;  // S + 1
  at::Tensor cu_seqlens_S1;              // i32, the same where the pass computes
  std::int64_t longest = 0;

  SequencePlan() = default;
  SequencePlan(const std::vector<std::int64_t>& cu_seqlens, at::Device device);
};

// Heads of 8, 16, ... 256 numbers, KV heads that divide the heads, no soft cap; sinks are the caller's to know.
bool flash_trains(const LayerShape& shape);

// Of each head of q and of k, before they turn; f32 [E], both or none.
struct HeadNorms {
  at::Tensor q_E{}, k_E{};
  double eps = 0;
};

// [T, H E] in bf16. qkv_TQ: bf16, contiguous: a row's heads of q, k and v. rope: q and k are turned before, without norms in qkv_TQ itself, which nobody else may
// read afterwards; nullptr: they are turned already, or the model turns none. With norms what is kept is qkv_TQ as it came.
at::Tensor gpu_flash_attention(const at::Tensor& qkv_TQ, const SequencePlan& sequences, const LayerShape& shape,
                               const RopeTable* rope, bool interleaved, const HeadNorms& norms = {});

// The same in f32 with gradients by ATen's; q [T, H, E], k and v [T, K, E] -> [T, H, E].
at::Tensor gpu_plain_attention(const at::Tensor& q_THE, const at::Tensor& k_TKE, const at::Tensor& v_TKE,
                               const std::vector<std::int64_t>& cu_seqlens, const LayerShape& shape);

}  // namespace magister
