// A TensorFile whose tensors and metadata are in memory: lets a test make any model, right or wrong, without a file.
// Tensors are f32 and hold distinct small integers, so that a misplaced row or column shows.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "magister/io/checkpoint/tensor_file.h"

namespace magister {

class MemoryTensorFile : public TensorFile {
 public:
  void add(const std::string& name, std::vector<std::int64_t> shape, StorageType type = StorageType::kF32) {
    std::int64_t count = 1;
    for (const std::int64_t n : shape) count *= n;
    const double start = 1000.0 * static_cast<double>(values_.size());
    values_[name] = (at::arange(count, at::kDouble) * 0.001 + start).to(at::kFloat).view(shape);
    remove_info(name);
    infos_.push_back({name, std::move(shape), type, static_cast<std::uint64_t>(count) * 4});
    std::sort(infos_.begin(), infos_.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  }
  void remove(const std::string& name) {
    remove_info(name);
    values_.erase(name);
  }
  at::Tensor& values(const std::string& name) { return values_.at(name); }
  Metadata& mutable_metadata() { return metadata_; }

  const std::vector<TensorInfo>& tensors() const override { return infos_; }
  const Metadata& metadata() const override { return metadata_; }
  const std::vector<std::string>& paths() const override { return paths_; }
  void read(const std::string& name, std::int64_t row_begin, std::int64_t row_end, std::int64_t column_begin,
            std::int64_t column_end, at::Tensor out) const override {
    at::Tensor all = values_.at(name);
    if (all.dim() == 1) all = all.unsqueeze(0);
    const at::Tensor part = all.slice(0, row_begin, row_end).slice(1, column_begin, column_end);
    TORCH_CHECK(part.sizes() == out.sizes(), name, ": asked for ", out.sizes(), ", the range has ", part.sizes());
    TORCH_CHECK(out.stride(1) == 1 || out.size(1) == 1, name, ": last dimension is not contiguous");
    out.copy_(part);
  }

 private:
  void remove_info(const std::string& name) {
    std::erase_if(infos_, [&](const TensorInfo& info) { return info.name == name; });
  }
  std::vector<TensorInfo> infos_;
  std::map<std::string, at::Tensor> values_;
  Metadata metadata_;
  std::vector<std::string> paths_;
};

}  // namespace magister
