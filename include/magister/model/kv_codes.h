// Pages of keys and values in 8-bit floats on GPUs (model.kv_cache: fp8): which models have them, and their bytes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "magister/model/model_config.h"
#include "magister/model/partition.h"

namespace magister {

// Throws Error(kConfig) for models whose keys and values are not vectors of a multiple of 8 numbers a KV head, and for
// weights of this dtype whose activations are not bf16.
void check_kv_codes(const ModelConfig& config, at::ScalarType dtype);

// Bytes of a page of 48 tokens over all layers of a shard on a GPU. dtype: of the weights. codes: each key and value of
// a KV head has a byte a number and one more for its scale.
std::uint64_t gpu_page_bytes(const ModelConfig& config, const Partition& partition, at::ScalarType dtype, bool codes);

}  // namespace magister
