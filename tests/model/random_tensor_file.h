// A TensorFile of random numbers for any model: tests of large or many shapes need no file.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "magister/io/checkpoint/tensor_file.h"
#include "magister/model/weights.h"
#include "model/families/family.h"

namespace magister {

// Numbers computed from their position: any slice of any tensor without storing one. Uniform with the deviation `gain`
// / sqrt(columns); norms are 1.
class RandomTensorFile : public TensorFile {
 public:
  explicit RandomTensorFile(const ModelDescription& description, float gain = 1) : gain_(gain) {
    for (const ExpectedTensor& tensor : expected_tensors(description.config, description.names)) {
      infos_.push_back({tensor.name, tensor.shape, StorageType::kF32, 0});
    }
    std::sort(infos_.begin(), infos_.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  }
  const std::vector<TensorInfo>& tensors() const override { return infos_; }
  const Metadata& metadata() const override { return metadata_; }
  const std::vector<std::string>& paths() const override { return paths_; }
  void read(const std::string& name, std::int64_t row_begin, std::int64_t row_end, std::int64_t column_begin,
            std::int64_t column_end, at::Tensor out) const override {
    const TensorInfo& info = *find(name);
    if (info.shape.size() == 1) {
      out.fill_(1);
      return;
    }
    const std::int64_t columns = info.shape[1], width = column_end - column_begin;
    const auto seed = static_cast<std::uint32_t>(std::hash<std::string>()(name));
    const float scale = gain_ * std::sqrt(12.0f / static_cast<float>(columns));
    at::Tensor line = at::empty({1, width}, at::kFloat);
    float* const values = line.data_ptr<float>();
    for (std::int64_t row = row_begin; row < row_end; ++row) {
      const std::uint32_t first =
          seed + static_cast<std::uint32_t>(row) * 0x9E3779B9u + static_cast<std::uint32_t>(column_begin);
      for (std::int64_t i = 0; i < width; ++i) values[i] = scale * uniform(first + static_cast<std::uint32_t>(i));
      out.narrow(0, row - row_begin, 1).copy_(line);
    }
  }

 private:
  // MurmurHash3's last mixing step -> [-0.5, 0.5).
  static float uniform(std::uint32_t x) {
    x = (x ^ (x >> 16)) * 0x85EBCA6Bu;
    x = (x ^ (x >> 13)) * 0xC2B2AE35u;
    return static_cast<float>(static_cast<std::int32_t>(x ^ (x >> 16)) >> 8) * 0x1p-24f;
  }
  float gain_;
  std::vector<TensorInfo> infos_;
  Metadata metadata_;
  std::vector<std::string> paths_;
};

}  // namespace magister
