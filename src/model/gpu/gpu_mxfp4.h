// Experts that a file stores in MXFP4 (gpt-oss) keep 4.5 bits a number on GPUs: numbers are read as bf16, which holds
// them exactly, and packed on the device into the same numbers' codes.
#pragma once

#include <cstdint>

#include "magister/io/checkpoint/tensor_file.h"
#include "magister/model/model_config.h"
#include "model/gpu/gpu_linear.h"

namespace magister::gpu {

// True if the routed experts' weights keep codes: the file stores all of them in MXFP4, and they are not quantised
// otherwise. dtype: of the model, as in GpuWeights::empty().
bool keeps_mxfp4(const ModelDescription& description, const TensorFile& file, at::ScalarType dtype,
                 const QuantScheme& quantization);

// lead: inputs of the first group of 32 that another shard holds. Leaves the weight as it is, and returns false, if it
// is not plain bf16 or if one of its numbers has no code. Waits for the device.
bool to_mxfp4(GpuLinear& linear, std::int64_t lead, const Queue& queue);

}  // namespace magister::gpu
