// Sizes, weights and texts of small models for comparisons of GPUs' and CPUs' code, and the distance of results.
#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "magister/model/weights.h"
#include "model/families/family.h"
#include "model/memory_tensor_file.h"

namespace magister {

// Adds all tensors of the model, equal in f32 and bf16: vectors are 0.5 to 1.5, products have this deviation, and
// attention's sinks ten times that.
inline void add_random_weights(MemoryTensorFile& file, const ModelDescription& description, double deviation) {
  for (const ExpectedTensor& tensor : expected_tensors(description.config, description.names)) {
    file.add(tensor.name, tensor.shape);
    const bool is_sink = tensor.name.ends_with("sinks"), is_vector = tensor.shape.size() == 1 && !is_sink;
    const at::Tensor values =
        is_vector ? at::rand(tensor.shape) + 0.5 : at::randn(tensor.shape) * (is_sink ? 10 * deviation : deviation);
    file.values(tensor.name) = values.to(at::kBFloat16).to(at::kFloat);
  }
}

// Four layers of six heads, which share three KV heads, with a vocabulary of 96.
inline ModelConfig small_llama() {
  ModelConfig config;
  config.family = "llama";
  config.vocab_size = 96;
  config.hidden_size = 64;
  config.intermediate_size = 96;
  config.num_hidden_layers = 4;
  config.num_attention_heads = 6;
  config.num_key_value_heads = 3;
  config.head_dim = 16;
  config.max_position_embeddings = 512;
  return config;
}

// Ids of that vocabulary.
inline std::vector<TokenId> some_text(std::size_t length, std::uint32_t seed) {
  std::vector<TokenId> ids;
  for (std::size_t i = 0; i < length; ++i)
    ids.push_back(static_cast<TokenId>((seed = seed * 1103515245 + 12345) >> 16) % 96);
  return ids;
}

// Root of the mean square of the difference, over that of `wanted`.
inline double apart(const at::Tensor& got, const at::Tensor& wanted) {
  return ((got - wanted).pow(2).mean() / wanted.pow(2).mean()).sqrt().item<double>();
}

}  // namespace magister
