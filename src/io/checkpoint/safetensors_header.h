// The two JSON texts of safetensors: a file's header and the index of a model in shards.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "magister/io/checkpoint/tensor_file.h"

namespace magister {

struct SafetensorsEntry {
  TensorInfo info;                   // num_bytes not set
  std::uint64_t begin = 0, end = 0;  // in the data that follows the header
};

// The tensors of a header. Throws Error(kData) naming path, tensor and value.
std::vector<SafetensorsEntry> parse_safetensors_header(std::string_view json, const std::string& path);

// Tensor name -> file name of its shard, a plain name beside the index (no folder, no "..").
std::map<std::string, std::string> parse_safetensors_index(std::string_view json, const std::string& path);

}  // namespace magister
