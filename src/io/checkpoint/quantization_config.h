// quantization_config of a Hugging Face config.json: which program quantised a checkpoint and how.
// Sources: transformers' quantization configs; compressed-tensors' quant_scheme; AutoGPTQ, AutoAWQ and bitsandbytes configs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace magister {

enum class QuantMethod { kGptq, kAwq, kCompressedTensors, kFp8, kBitsAndBytes, kMxfp4 };

struct QuantizationConfig {
  QuantMethod method = QuantMethod::kGptq;
  std::string path;                                // of the config.json, for messages
  std::vector<std::int64_t> bits;                  // that the file names for weights; empty: it names none
  std::vector<std::int64_t> group_sizes;           // likewise; -1 and absent ones are left out
  std::int64_t block_rows = 0, block_columns = 0;  // of FP8 in blocks, else 0
  bool symmetric = false;                          // GPTQ: all zeros are the middle
  bool stored_zero_is_true = false;                // GPTQ v2; v1 stores zero - 1
};

// Of the folder's config.json, or nothing when there is no such file or no such key (or no JSON: who needs the config says so).
// Throws Error(kData) for a method, a variant or a value that is not read here, by name.
std::optional<QuantizationConfig> read_quantization_config(const std::string& folder);

}  // namespace magister
