// Causal attention over the sequences of a micro-batch, as autograd follows it, with every mask, bias and additional
// key that a decoder may have. GPU code has kernels for windows alone. It brings the rest into their form: chunks are
// sequences, ALiBi is columns of queries and keys, and zeros make values as wide as keys. Soft caps, an indexer's
// choice and in f32 sinks run one sequence at a time there, too, as all of it does without GPU code.
// Legend: T packed tokens, H heads, K KV heads, E numbers of a head's query and key, V of its values.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "magister/model/layer_shape.h"
#include "train/gpu_attention.h"

namespace magister {

// The keys that each query sees, by sequence: [L, L] bool, undefined where it sees all earlier ones. Empty: in all.
using VisibleKeys = std::vector<at::Tensor>;

// The shape of the same attention for GPU kernels: chunks, ALiBi and heads of different sizes in their form.
LayerShape kernel_shape(const LayerShape& shape, bool bf16);

// Returns [T, H V], in bf16 if flash attention computed it, else f32. sinks_H: scores of one more key that every query
// sees and that has no value; undefined: none. plan: for GPU code, of the layer's chunks if it has them; nullptr: CPU
// code.
at::Tensor attend_sequences(const at::Tensor& q_THE, const at::Tensor& k_TKE, const at::Tensor& v_TKV,
                            const at::Tensor& sinks_H, const LayerShape& shape,
                            const std::vector<std::int64_t>& cu_seqlens, const SequencePlan* plan, bool bf16,
                            const VisibleKeys& visible = {});

}  // namespace magister
