// A model in parts: NAME-00001-of-00003.gguf and so on, each a GGUF file that says in split.no, split.count and split.tensors.count which
// part of how many it is. Source: llama.cpp's gguf-split.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "magister/io/checkpoint/tensor_file.h"

namespace magister {

struct GgufSplit {
  std::uint64_t index = 0, count = 1;  // index from 0, as split.no
  std::uint64_t num_tensors = 0;       // of all parts
};

// What a header says; nothing for a whole model. Throws Error(kData) for numbers that cannot be.
std::optional<GgufSplit> gguf_split(const Metadata& metadata, const std::string& path);

// The paths of all parts in order, from the path of any. Throws Error(kData) when its name is not that of its part,
// Error(kInputOutput) naming a part that is not there.
std::vector<std::string> gguf_parts(const std::string& path, const GgufSplit& split);

// Refuses what stands under the name of part `index` and is another part, or another model's. `given` is the path from the user,
// whose header said `split`.
void check_gguf_part(const Metadata& metadata, const std::string& path, std::uint64_t index, const GgufSplit& split,
                     const std::string& given);

}  // namespace magister
