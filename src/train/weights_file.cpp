// See weights_file.h.
#include "magister/train/weights_file.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>

#include "magister/core/error.h"
#include "magister/device/upload.h"
#include "magister/io/checkpoint/device_tensors.h"
#include "magister/io/checkpoint/lora_adapter.h"
#include "train/gpu/merge_kernel.h"
#include "train/gpu_numbers.h"

namespace magister {
namespace {

class WeightsInMemory : public TensorFile {
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
    merge(merged_NK, b_NR.narrow(0, row_begin, rows), a_RK.narrow(1, column_begin, columns), adapter_->layout.scale());
    out.copy_(merged_NK);
  }

 protected:
  virtual void merge(at::Tensor& weight_NK, const at::Tensor& b_NR, const at::Tensor& a_RK, float scale) const {
    add_lora_product(weight_NK, b_NR.contiguous(), a_RK.contiguous(), scale);
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

class WeightsOnDevice final : public WeightsInMemory, public DeviceTensors {
 public:
  WeightsOnDevice(const ParameterLayout& layout, const at::Tensor& flat, const std::optional<LoraWeights>& adapter,
                  const gpu::Queue& queue)
      : WeightsInMemory(layout, flat, adapter), queue_(queue) {}

  at::Device device() const override { return device_of(queue_); }

 protected:
  void merge(at::Tensor& weight_NK, const at::Tensor& b_NR, const at::Tensor& a_RK, float scale) const override {
    gpu::start(gpu::MergeFactors{numbers<float>(weight_NK), numbers<const float>(b_NR), numbers<const float>(a_RK),
                                 b_NR.stride(0), b_NR.stride(1), a_RK.stride(0), a_RK.stride(1), weight_NK.size(0),
                                 weight_NK.size(1), b_NR.size(1), scale},
               queue_);
  }

 private:
  gpu::Queue queue_;
};

}  // namespace

std::unique_ptr<TensorFile> weights_as_file(const ParameterLayout& layout, const at::Tensor& flat_weights,
                                            const std::optional<LoraWeights>& adapter,
                                            const std::optional<gpu::Queue>& gpu) {
  if (gpu) return std::make_unique<WeightsOnDevice>(layout, flat_weights, adapter, *gpu);
  return std::make_unique<WeightsInMemory>(layout, flat_weights, adapter);
}

}  // namespace magister
