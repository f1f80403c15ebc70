// Writes safetensors files (trained models and training states), completely or not at all. f32 only.
// Source: huggingface/safetensors, format description in its README.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace magister {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;  // f32, CPU, contiguous
  // For a tensor that is not in memory: its shape, and a function that returns it, called each time the tensors are
  // written or hashed.
  std::vector<std::int64_t> shape{};
  std::function<at::Tensor()> read{};
};
using TextPairs = std::vector<std::pair<std::string, std::string>>;

// Called between blocks of 64 MiB. What it throws ends the work, and no file is left.
using BetweenBlocks = std::function<void()>;
// Replaces an existing file. Throws Error(kInputOutput).
void write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors, const TextPairs& metadata,
                       const BetweenBlocks& between = {});
// __metadata__ in the header of a file that TensorFile::open has accepted. Throws Error(kData).
TextPairs safetensors_metadata(const std::string& path);
// Hash of names, shapes and bytes in order, in hex.
std::string tensors_sha256(const std::vector<NamedTensor>& tensors, const BetweenBlocks& between = {});

}  // namespace magister
