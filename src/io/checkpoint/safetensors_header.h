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
  TensorInfo info;                   // num_bytes is not set
  std::uint64_t begin = 0, end = 0;  // offsets in the data that follows the header
};

// Parses the tensors of a header. Throws Error(kData) naming path, tensor and value.
std::vector<SafetensorsEntry> parse_safetensors_header(std::string_view json, const std::string& path);

// Maps a tensor's name to the file name of its shard, a plain name in the index's folder (no "/", no "..").
std::map<std::string, std::string> parse_safetensors_index(std::string_view json, const std::string& path);

}  // namespace magister
