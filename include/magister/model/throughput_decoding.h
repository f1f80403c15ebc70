// Models for which decoding passes may use cuBLASLt's products (model.decoding: throughput).
#pragma once

#include <ATen/core/Tensor.h>

#include "magister/model/model_config.h"

namespace magister {

// Throws Error(kConfig) for models that Transformer::use_throughput_decoding() refuses whatever the library supports:
// classifiers, experts, and heads (of each shard) or a dtype (of the weights) that the decoding kernels do not support.
void check_throughput_decoding(const ModelConfig& config, at::ScalarType dtype, int tp_size);

}  // namespace magister
