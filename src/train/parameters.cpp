// From the parameter table; see parameters.h.
#include "magister/train/parameters.h"

#include <ATen/ATen.h>

#include "magister/core/error.h"
#include "magister/core/splitmix64.h"

namespace magister {

namespace {

constexpr std::int64_t kAlignment = 16;  // numbers

}  // namespace

std::size_t FlatLayout::add(const std::string& name, const std::vector<std::int64_t>& shape) {
  const auto count = static_cast<std::int64_t>(num_elements(shape));
  all_.push_back({name, shape, flat_size_, count});
  flat_size_ += (count + kAlignment - 1) / kAlignment * kAlignment;
  return all_.size() - 1;
}

ParameterLayout::ParameterLayout(const ModelDescription& description)
    : description_(description), table_(layer_parameters(description.config, 0)) {
  const ModelConfig& config = description.config;
  const TensorNames& names = description.names;
  // What the trunk does not compute.
  const bool has_other_blocks = config.num_experts > 0 || !config.gated_mlp || config.norm_bias ||
                                config.learned_positions || config.parallel_norms || config.fused_qkv_by_head ||
                                config.clip_qkv > 0 || names.transposed_products ||
                                config.activation == Activation::kGelu;
  MAGISTER_CHECK(!has_other_blocks, ExitCode::kConfig,
                 "models of the family {} are not trained yet (their blocks are not differentiated); name a model of "
                 "another family, README lists them",
                 config.family);
  for (const ModelParameter& row : model_parameters(config)) {
    if (row.name == &TensorNames::embed_tokens) embeddings_ = head_ = add(names.*row.name, row.shape);
  }
  for (const TensorNames::Layer& layer_names : names.layers) {
    Layer& layer = layers_.emplace_back();
    for (const LayerParameter& row : table_) {
      const bool whole = row.stored.empty();
      if (row.first_row == 0) layer.parameters.push_back(add(layer_names.*row.name, whole ? row.shape : row.stored));
      layer.slices.push_back({layer.parameters.size() - 1, row.first_row, row.shape.front(), whole});
    }
  }
  for (const ModelParameter& row : model_parameters(config)) {
    if (row.name == &TensorNames::norm) norm_ = add(names.*row.name, row.shape);
    if (row.name == &TensorNames::lm_head) head_ = add(names.*row.name, row.shape);
  }
}

std::int64_t FlatLayout::num_parameters() const {
  std::int64_t sum = 0;
  for (const TrainParameter& parameter : all_) sum += parameter.count;
  return sum;
}

at::Tensor FlatLayout::view(const at::Tensor& flat, std::size_t index) const {
  const TrainParameter& parameter = all_[index];
  return flat.narrow(0, parameter.offset, parameter.count).view(parameter.shape);
}

namespace {

void draw_normal(at::Tensor& out, const NewHead& head) {
  const std::uint64_t key = splitmix64(splitmix64(head.seed ^ 0x68656164));  // "head": another stream than the epochs'
  auto* values = out.data_ptr<float>();
  for (std::int64_t i = 0; i < out.numel(); ++i)
    values[i] = static_cast<float>(head.deviation * normal_number(key + static_cast<std::uint64_t>(i)));
}

}  // namespace

void ParameterLayout::read(const TensorFile& file, at::Tensor& flat, const NewHead& new_head) const {
  for (std::size_t i = 0; i < all().size(); ++i) {
    const TrainParameter& parameter = all()[i];
    at::Tensor out = view(flat, i);
    const std::int64_t rows = parameter.shape.size() == 1 ? 1 : parameter.shape.front();
    out = out.view({rows, parameter.count / rows});
    if (i == head_ && description_.config.is_classifier() && file.find(parameter.name) == nullptr) {
      draw_normal(out, new_head);
      continue;
    }
    file.read(parameter.name, 0, rows, 0, out.size(1), out);
    MAGISTER_CHECK(at::isfinite(out.sum(at::kDouble)).item<bool>(), ExitCode::kData,
                   "tensor {} holds a number that is not finite (every loss would be NaN); start from other weights",
                   printable(parameter.name));
  }
}

}  // namespace magister
