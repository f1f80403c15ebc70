// How a checkpoint's weights are stored quantised, known from config.json alone.
#pragma once

#include <optional>
#include <string>

namespace magister {

struct StoredQuantization {
  std::string method;  // as quantization_config names it: gptq, awq, compressed-tensors, fp8, bitsandbytes, mxfp4
  // Bits of a weight of an expert with its share of the scales, where the method stores experts' products alone as
  // codes and everything else in 16 bits (mxfp4: OCP Microscaling Formats 1.0, an 8-bit scale for 32 numbers); else 0.
  double expert_bits = 0;
};

// Reads config.json of the folder. nullopt if it names no quantised weights. Throws Error(kData) for a method, variant
// or value that TensorFile::open() cannot read, by name.
std::optional<StoredQuantization> stored_quantization(const std::string& folder);

}  // namespace magister
