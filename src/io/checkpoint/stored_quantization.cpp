// The method by which a checkpoint is quantised, from its config.json; see stored_quantization.h.
#include "magister/io/checkpoint/stored_quantization.h"

#include "io/checkpoint/quantization_config.h"

namespace magister {

std::optional<StoredQuantization> stored_quantization(const std::string& folder) {
  const std::optional<QuantizationConfig> config = read_quantization_config(folder);
  if (!config) return std::nullopt;
  switch (config->method) {
    case QuantMethod::kGptq:
      return StoredQuantization{"gptq", 0};
    case QuantMethod::kAwq:
      return StoredQuantization{"awq", 0};
    case QuantMethod::kCompressedTensors:
      return StoredQuantization{"compressed-tensors", 0};
    case QuantMethod::kFp8:
      return StoredQuantization{"fp8", 0};
    case QuantMethod::kBitsAndBytes:
      return StoredQuantization{"bitsandbytes", 0};
    case QuantMethod::kMxfp4:
      return StoredQuantization{"mxfp4", 4 + 8.0 / 32};
  }
  return std::nullopt;
}

}  // namespace magister
