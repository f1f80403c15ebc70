// A checkpoint that another program quantised, seen as the weights it stands for: a TensorFile whose "<name>.weight" are
// dequantised when a window of them is read, beside the tensors that were left alone.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "io/checkpoint/mapped_tensors.h"
#include "io/checkpoint/quantization_config.h"
#include "io/checkpoint/quantized_weight.h"

namespace magister {

// The logical weights of a checkpoint by name ("model.layers.0.mlp.up_proj.weight"), and the stored tensors they take.
struct QuantizedWeights {
  std::map<std::string, QuantizedWeight> weights;
  std::map<std::string, std::string> taken;  // stored tensor -> the weight that uses it; also what is read by nothing
};

// Finds and checks them: every shape and type against the others and the config. Throws Error(kData) naming the tensor.
QuantizedWeights find_quantized_weights(const MappedTensors& file, const QuantizationConfig& config);

std::unique_ptr<TensorFile> open_quantized(std::unique_ptr<MappedTensors> file, const QuantizationConfig& config);

}  // namespace magister
