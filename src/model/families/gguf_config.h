// GgufConfig: range-checked reads of a GGUF header's metadata below "<architecture>.". Every fault is an Error(kData)
// with file, key and value. Keys that would change results and that the family does not compute are refused by name.
// Source: ggml GGUF specification, standard keys.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "magister/io/checkpoint/tensor_file.h"
#include "magister/model/model_config.h"

namespace magister {

class GgufConfig {
 public:
  // `file` is kept by reference; it must have general.architecture.
  GgufConfig(const std::string& path, const TensorFile& file);

  const std::string& architecture() const { return architecture_; }
  bool has(const std::string& key) const;  // without "<architecture>."
  std::int64_t integer(const std::string& key, std::int64_t least, std::int64_t most) const;  // required
  std::int64_t integer_or(const std::string& key, std::int64_t fallback, std::int64_t least, std::int64_t most) const;
  double number(const std::string& key, double least, double most) const;  // required
  double number_or(const std::string& key, double fallback, double least, double most) const;
  bool boolean(const std::string& key) const;  // required
  std::int64_t vocab_size() const;
  std::int64_t token_or(const std::string& full_key, std::int64_t fallback) const;
  // Divisors of rotary frequencies from an F32 tensor of shape [size], each between 1e-6 and 1e6; empty: the file has
  // no such tensor.
  std::vector<float> divisors(const std::string& name, std::int64_t size) const;
  bool has_tensor(const std::string& name) const { return file_.find(name) != nullptr; }

  RopeConfig rope(std::int64_t head_dim) const;
  // Tells for each layer whether it has a sliding window. <architecture>.attention.sliding_window_pattern is a list of
  // one flag per layer, or a number n: every n-th layer has no window. Without the key n is `interval`.
  std::vector<bool> sliding_layers(std::int64_t interval, std::int64_t num_layers) const;
  std::int64_t rotary_dim(std::int64_t head_dim) const;            // 0: all dimensions of the head
  void refuse_unsupported(std::span<const char* const> computes);  // see HfConfig

  const std::string& path() const { return path_; }

 private:
  const MetadataValue* find(const std::string& full_key) const;
  std::int64_t checked_integer(const MetadataValue& value, const std::string& full_key, std::int64_t least,
                               std::int64_t most) const;
  double checked_number(const MetadataValue& value, const std::string& full_key, double least, double most) const;
  void read_yarn(RopeConfig& rope) const;

  std::string path_;
  const TensorFile& file_;
  std::string architecture_;
  std::span<const char* const> computes_{};
};

}  // namespace magister
