// Scales with which other engines store keys and values in FP8. No product of a model reads them.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "magister/io/checkpoint/tensor_file.h"

namespace magister {

// True for such a scale, judged by its name and its small size. Names: compressed-tensors (self_attn.k_scale,
// k_proj.output_scale), ModelOpt (k_proj.k_scale) and older files (kv_scale). Such names occur in attention only.
bool is_cache_scale(const TensorInfo& info);

// A sentence for the log: `count` scales are ignored; `first` is the name of the first one.
std::string describe_cache_scales(std::size_t count, const std::string& first);

// True if config.json's quantization_config concerns only the stored keys and values and leaves the weights unquantised
// (compressed-tensors).
bool quantizes_cache_alone(const nlohmann::json& quantization_config);

}  // namespace magister
