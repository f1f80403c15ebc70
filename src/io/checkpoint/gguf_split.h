// A model in parts: NAME-00001-of-00003.gguf and so on, each a GGUF file whose keys split.no, split.count and
// split.tensors.count give its part number and the number of parts and tensors. Source: llama.cpp's gguf-split.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "magister/io/checkpoint/tensor_file.h"

namespace magister {

struct GgufSplit {
  std::uint64_t index = 0, count = 1;  // index counts from 0, as split.no
  std::uint64_t num_tensors = 0;       // in all parts
};

// Reads the split keys of a header; nullopt for a model in one file. Throws Error(kData) for impossible numbers.
std::optional<GgufSplit> gguf_split(const Metadata& metadata, const std::string& path);

// The paths of all parts in order, from the path of any part. Throws Error(kData) if its name is not that of its part,
// Error(kInputOutput) naming a part that does not exist.
std::vector<std::string> gguf_parts(const std::string& path, const GgufSplit& split);

// Refuses a file with the name of part `index` that is another part, or part of another model. `given` is the path from
// the user, whose header gave `split`.
void check_gguf_part(const Metadata& metadata, const std::string& path, std::uint64_t index, const GgufSplit& split,
                     const std::string& given);

}  // namespace magister
