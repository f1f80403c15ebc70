// ALiBi for attention kernels that add no biases to scores: numbers that follow those of a query and of a key, so that
// their product has the bias.
// Legend: T rows of a packed batch, H query heads, C columns.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "magister/model/layer_shape.h"

namespace magister {

// kAlibiColumns keeps a head's size a multiple of eight. A query's columns are ones.
inline constexpr std::int64_t kAlibiColumns = 8;

// Returns the keys' columns, [T, H, C] f32 on the device: three numbers of bf16, whose sum is the bias of a key in f32,
// and zeros. The bias is that of the key's position alone; what the query's position adds is the same for all of its
// keys, and a softmax does not depend on it. The layer must have ALiBi.
at::Tensor alibi_columns(const LayerShape& shape, const std::vector<std::int64_t>& cu_seqlens, at::Device device);

}  // namespace magister
