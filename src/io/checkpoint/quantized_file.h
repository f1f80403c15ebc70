// A checkpoint that another program quantised, seen as its logical weights: a TensorFile whose "<name>.weight" are
// dequantised when a window of them is read. Tensors that are not quantised stay as they are.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "io/checkpoint/mapped_tensors.h"
#include "io/checkpoint/quantization_config.h"
#include "io/checkpoint/quantized_weight.h"

namespace magister {

// The logical weights of a checkpoint by name ("model.layers.0.mlp.up_proj.weight"), and the stored tensors that they
// use.
struct QuantizedWeights {
  std::map<std::string, QuantizedWeight> weights;
  // Stored tensor -> the weight it belongs to; also for tensors that are never read.
  std::map<std::string, std::string> taken;
};

// Finds and checks them: every shape and type against the other tensors and the config. Throws Error(kData) naming the
// tensor.
QuantizedWeights find_quantized_weights(const MappedTensors& file, const QuantizationConfig& config);

std::unique_ptr<TensorFile> open_quantized(std::unique_ptr<MappedTensors> file, const QuantizationConfig& config);

}  // namespace magister
