// See weights_file.h.
#include "magister/train/weights_file.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>

#include "magister/core/error.h"
#include "magister/io/checkpoint/lora_adapter.h"

namespace magister {
namespace {

class WeightsInMemory final : public TensorFile {
 public:
  WeightsInMemory(const ParameterLayout& layout, const at::Tensor& flat, const std::optional<LoraWeights>& adapter)
      : layout_(layout), flat_(flat), adapter_(adapter) {
    for (std::size_t i = 0; i < layout.all().size(); ++i) {
      const TrainParameter& parameter = layout.all()[i];
      index_.emplace(parameter.name, i);
      tensors_.push_back(
          {parameter.name, parameter.shape, StorageType::kF32, static_cast<std::uint64_t>(parameter.count) * 4});
    }
    std::sort(tensors_.begin(), tensors_.end(),
              [](const TensorInfo& a, const TensorInfo& b) { return a.name < b.name; });
    if (!adapter_) return;
    for (std::size_t layer = 0; layer < layout.layers().size(); ++layer) {
      for (const LoraLayout::Pair& pair : adapter_->layout.pairs(layer))
        pairs_.emplace(layout.layers()[layer].parameters[pair.parameter], pair);
    }
  }

  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  const Metadata& metadata() const override { return metadata_; }
  const std::vector<std::string>& paths() const override { return paths_; }

  void read(const std::string& name, std::int64_t row_begin, std::int64_t row_end, std::int64_t column_begin,
            std::int64_t column_end, at::Tensor out) const override {
    const auto found = index_.find(name);
    MAGISTER_CHECK(found != index_.end(), ExitCode::kInternal,
                   "{}: is not a parameter of this training (its model was asked for that of another); report this",
                   name);
    const at::Tensor whole = layout_.view(flat_, found->second);
    const std::int64_t rows = row_end - row_begin, columns = column_end - column_begin;
    const at::Tensor weight_NK = as_rows(whole).narrow(0, row_begin, rows).narrow(1, column_begin, columns);
    const auto pair = pairs_.find(found->second);
    if (pair == pairs_.end()) {
      out.copy_(weight_NK);
      return;
    }
    const auto factor = [&](std::size_t index) { return adapter_->layout.view(adapter_->flat, index); };
    at::Tensor merged_NK = weight_NK.clone(at::MemoryFormat::Contiguous);
    const bool inputs_first = adapter_->layout.inputs_first();
    const at::Tensor b_NR = inputs_first ? factor(pair->second.a).t() : factor(pair->second.b),
                     a_RK = inputs_first ? factor(pair->second.b).t() : factor(pair->second.a);
    add_lora_product(merged_NK, b_NR.narrow(0, row_begin, rows).contiguous(),
                     a_RK.narrow(1, column_begin, columns).contiguous(), adapter_->layout.scale());
    out.copy_(merged_NK);
  }

 private:
  const ParameterLayout& layout_;
  const at::Tensor& flat_;
  std::optional<LoraWeights> adapter_;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, std::size_t> index_;       // index in the layout's parameters
  std::map<std::size_t, LoraLayout::Pair> pairs_;  // by parameter that has factors
  Metadata metadata_;
  std::vector<std::string> paths_;
};

}  // namespace

std::unique_ptr<TensorFile> weights_as_file(const ParameterLayout& layout, const at::Tensor& flat_weights,
                                            const std::optional<LoraWeights>& adapter) {
  return std::make_unique<WeightsInMemory>(layout, flat_weights, adapter);
}

}  // namespace magister
