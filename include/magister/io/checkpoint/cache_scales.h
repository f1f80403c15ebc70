// Scales with which other engines keep keys and values in FP8: numbers beside the weights that no product of a model reads.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "magister/io/checkpoint/tensor_file.h"

namespace magister {

// Whether the tensor is one, by the name and the few numbers that compressed-tensors (self_attn.k_scale, k_proj.output_scale), ModelOpt
// (k_proj.k_scale) and older files (kv_scale) give it. Such names occur in attention alone.
bool is_cache_scale(const TensorInfo& info);

// For people: so many of them are left out, `first` first.
std::string describe_cache_scales(std::size_t count, const std::string& first);

// Whether config.json's quantization_config says only how keys and values are to be kept, and leaves the weights as they are (compressed-tensors).
bool quantizes_cache_alone(const nlohmann::json& quantization_config);

}  // namespace magister
