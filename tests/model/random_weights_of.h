// Weights of small models for comparisons of GPUs' and CPUs' code.
#pragma once

#include <ATen/ATen.h>

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

}  // namespace magister
