// Writes safetensors files, whole or not at all: models that were trained, and states of training. f32 only.
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
  // Where it is not held: its shape, and what gives it, called once whenever the tensors are written or hashed.
  std::vector<std::int64_t> shape{};
  std::function<at::Tensor()> read{};
};
using TextPairs = std::vector<std::pair<std::string, std::string>>;

// Replaces what stood there. Throws Error(kInputOutput).
void write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors, const TextPairs& metadata);
// The header's __metadata__ of a file that TensorFile::open has taken. Throws Error(kData).
TextPairs safetensors_metadata(const std::string& path);
// Of names, shapes and bytes in order, in hex.
std::string tensors_sha256(const std::vector<NamedTensor>& tensors);

}  // namespace magister
