// TensorFile: named tensors in a mapped file (safetensors, sharded safetensors with an index, GGUF). Data is read only
// when a row range of a tensor is requested; every offset and size is checked against the file when it is opened.
// Sources: huggingface/safetensors format, ggml GGUF specification v2/v3.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "magister/core/types.h"
#include "magister/io/checkpoint/stored_codes.h"

namespace magister {

// Storage of a tensor's elements. The block types are ggml's: rows run along the LAST dimension in blocks.
enum class StorageType {
  kF32,
  kF16,
  kBF16,
  kF64,
  kI8,
  kI16,
  kI32,
  kI64,
  kU8,
  kBool,
  kF8_E4M3,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kQ2_K,
  kQ3_K,
  kIQ4_NL,
  kMXFP4
};
std::string to_string(StorageType type);

struct TensorInfo {
  std::string name;
  std::vector<std::int64_t> shape;  // row-major, torch order: [out, in] for a linear (GGUF's reversed order undone)
  StorageType type = StorageType::kF32;
  std::uint64_t num_bytes = 0;
};

// One metadata value of a GGUF header. For safetensors the map is empty. Arrays hold strings and numbers only.
using MetadataValue = std::variant<bool, std::int64_t, std::uint64_t, double, std::string, std::vector<std::string>,
                                   std::vector<std::int64_t>, std::vector<double>>;
using Metadata = std::map<std::string, MetadataValue>;

class TensorFile {
 public:
  virtual ~TensorFile() = default;

  // `path` is a .gguf file (any part of a model in parts, NAME-00001-of-00003.gguf), a .safetensors file, or a folder
  // with model.safetensors or model.safetensors.index.json. If config.json in the folder says that the checkpoint is
  // quantised (GPTQ, AWQ, compressed-tensors, FP8, bitsandbytes, MXFP4), the tensors are its logical weights; any other
  // quant_method is refused by name.
  // Throws Error(kData) or Error(kInputOutput) naming the file, the tensor and the values.
  static std::unique_ptr<TensorFile> open(const std::string& path);

  virtual const std::vector<TensorInfo>& tensors() const = 0;  // sorted by name
  const TensorInfo* find(const std::string& name) const;       // nullptr if there is none
  virtual const Metadata& metadata() const = 0;

  // Reads rows [row_begin, row_end) and columns [column_begin, column_end) of a tensor seen as [rows, columns] (1-D
  // tensors: rows = 1) into `out`, converted or dequantised. out: CPU, f32 or bf16 or f16, contiguous in its last
  // dimension, shape [rows, columns] (any row stride, so that several tensors can be read into one fused weight).
  // Quantised columns may start and end anywhere. The mapped pages are released afterwards. Thread-safe.
  virtual void read(const std::string& name, std::int64_t row_begin, std::int64_t row_end, std::int64_t column_begin,
                    std::int64_t column_end, at::Tensor out) const = 0;

  // True if the weights are stored quantised as config.json's quantization_config says; read() gives them dequantised.
  // Their TensorInfo has type f32 and the number of bytes of the codes.
  virtual bool dequantizes() const { return false; }

  // How the file stores this tensor [N, K] if it holds codes of 4 or 8 bits with one scale per 32, 64 or 128 inputs or
  // one per output; else nullopt. Throws Error(kData) as read() does.
  virtual std::optional<CodeFormat> code_format(const std::string& name) const;
  // Reads the stored codes of a window. Only for tensors that have a code_format(). Thread-safe.
  virtual void read_codes(const std::string& name, IndexRange rows, IndexRange columns, const CodeWindow& out) const;

  // Files of the model, for hashing: tensor files in order.
  virtual const std::vector<std::string>& paths() const = 0;
};

}  // namespace magister
