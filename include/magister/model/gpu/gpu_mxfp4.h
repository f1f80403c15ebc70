// Bytes of one shard's weights on a GPU, and whether they are codes.
#pragma once

#include <cstdint>

#include "magister/model/weights.h"

namespace magister {

// weight_bytes() without what routed experts save that keep MXFP4's codes on GPUs. Local; as that function.
std::uint64_t gpu_weight_bytes(const ModelDescription& description, const TensorFile& file, at::ScalarType dtype,
                               int tp_rank, int tp_size, const QuantScheme& quantization);

// Bytes by which the routed experts of a shard in MXFP4 are smaller than in bf16, where all of them keep their codes.
std::uint64_t saved_by_mxfp4(const ModelConfig& config, int tp_rank, int tp_size);

// True if products of a GPU's layers are codes: quantised ones, or MXFP4's. A pass of prompts makes them plain, one
// product or a slice of experts at a time. Local.
bool gpu_has_codes(const ModelDescription& description, const TensorFile& file, at::ScalarType dtype,
                   const QuantScheme& quantization);

}  // namespace magister
