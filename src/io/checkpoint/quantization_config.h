// quantization_config in a Hugging Face config.json: which program quantised a checkpoint and how.
// Sources: transformers' quantization configs; compressed-tensors' quant_scheme; the configs of AutoGPTQ, AutoAWQ and
// bitsandbytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace magister {

enum class QuantMethod { kGptq, kAwq, kCompressedTensors, kFp8, kBitsAndBytes, kMxfp4 };

struct WeightBlock {
  std::int64_t rows, columns;
  bool operator==(const WeightBlock&) const = default;
};

struct QuantizationConfig {
  QuantMethod method = QuantMethod::kGptq;
  std::string path;                       // of the config.json, for messages
  std::vector<std::int64_t> bits;         // bits of weights that the file names; empty: none
  std::vector<std::int64_t> group_sizes;  // group sizes that the file names; -1 and absent ones are left out
  std::vector<WeightBlock> blocks;        // that share a scale, in FP8: one kind of them, or several for unlike layers
  bool symmetric = false;                 // GPTQ: all zeros are the middle
  bool stored_zero_is_true = false;       // GPTQ v2: true; v1 stores zero - 1
};

// Reads config.json of the folder. nullopt if there is no such file or no such key, or if it is not JSON (the code that
// needs the config reports that). Throws Error(kData) for an unsupported method, variant or value, by name.
std::optional<QuantizationConfig> read_quantization_config(const std::string& folder);

}  // namespace magister
