// Bytes of one shard's weights on a GPU.
#pragma once

#include <cstdint>

#include "magister/model/weights.h"

namespace magister {

// weight_bytes() without what routed experts save that keep MXFP4's codes on GPUs. Local; as that function.
std::uint64_t gpu_weight_bytes(const ModelDescription& description, const TensorFile& file, at::ScalarType dtype,
                               int tp_rank, int tp_size, const QuantScheme& quantization);

}  // namespace magister
