// Causal attention of a packed micro-batch in GPU code. With bf16 all sequences go through one call of the flash kernel
// for sequences of different lengths, forward and backward, on q, k and v in bf16, without repeating KV heads. f32, and
// shapes that flash attention does not take, go through ATen's scaled_dot_product_attention, sequences of one length in
// one call.
// On the host host_flash.h replaces the flash kernel.
// Legend: T rows of a packed batch, S sequences, H query heads, K KV heads, E numbers of a head, Q = (H + 2K) E.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "magister/model/layer_shape.h"
#include "magister/model/rope.h"

namespace magister {

// The positions where the sequences of a micro-batch begin; made once for all layers. For layers that attend in chunks
// every chunk of a sequence counts as one.
struct SequencePlan {
  std::vector<std::int64_t> cu_seqlens;  // S + 1
  at::Tensor cu_seqlens_S1;              // i32, the same on the device of the pass
  std::int64_t longest = 0;
  at::Tensor alibi_THC{};  // of models with ALiBi, see alibi_columns.h

  SequencePlan() = default;
  // chunk: tokens of a chunk, counted from the beginning of each sequence; 0: sequences are whole.
  SequencePlan(const std::vector<std::int64_t>& cu_seqlens, at::Device device, std::int64_t chunk = 0);
};

// Reports whether flash attention takes the shape: heads of 8, 16, ... 256 numbers, KV heads that divide the heads, no
// soft cap, and no masks or biases but windows.
bool flash_trains(const LayerShape& shape);

// Norms of each head of q and of k, before the rotation; f32 [E], both or none.
struct HeadNorms {
  at::Tensor q_E{}, k_E{};
  double eps = 0;
};

// Returns [T, H E] in bf16. qkv_TQ: bf16, contiguous: a row's heads of q, k and v. rope: q and k are rotated first;
// without norms this changes qkv_TQ itself, which nobody else may read afterwards. nullptr: they are rotated already,
// or the model rotates none. With norms qkv_TQ is kept unchanged. sinks_H: f32, scores of one more key that every query
// sees and that has no value; undefined: none.
at::Tensor gpu_flash_attention(const at::Tensor& qkv_TQ, const SequencePlan& sequences, const LayerShape& shape,
                               const RopeTable* rope, bool interleaved, const HeadNorms& norms = {},
                               const at::Tensor& sinks_H = {});

// Repeats KV heads for H query heads: [T, K, E] -> [T, H, E].
at::Tensor for_all_heads(const at::Tensor& x_TKE, std::int64_t heads);

// The same as gpu_flash_attention() in f32, differentiated by ATen; q [T, H, E], k and v [T, K, E] -> [T, H, E].
at::Tensor gpu_plain_attention(const at::Tensor& q_THE, const at::Tensor& k_TKE, const at::Tensor& v_TKE,
                               const std::vector<std::int64_t>& cu_seqlens, const LayerShape& shape);

}  // namespace magister
