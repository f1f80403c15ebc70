// Weights around a layer's blocks - vectors by layer, factors, norms - which every shard holds whole, and the tables
// outside the layers that belong to them.
#include <ATen/ATen.h>

#include <algorithm>

#include "magister/model/parameter_table.h"
#include "magister/model/weights.h"
#include "model/cpu/kept_codes.h"

namespace magister {

at::Tensor WeightSource::load_layer_whole(std::int64_t layer, std::string TensorNames::Layer::* name) {
  for (const LayerParameter& row : layer_parameters(description_.config, layer)) {
    if (row.expert < 0 && row.name == name) return load_whole(names_of(layer).*name, row.shape);
  }
  return {};
}

Linear WeightSource::load_layer_product(std::int64_t layer, std::string TensorNames::Layer::* name) {
  for (const LayerParameter& row : layer_parameters(description_.config, layer)) {
    if (row.expert >= 0 || row.name != name) continue;
    const auto rows = static_cast<std::uint64_t>(row.shape[0]), columns = static_cast<std::uint64_t>(row.shape[1]);
    return load_product({{names_of(layer).*name, {0, rows}, 0}}, row.shape[0], {0, columns}, columns);
  }
  return {};
}

at::Tensor WeightSource::load_matrix(std::string TensorNames::* name) {
  for (const ModelParameter& row : model_parameters(description_.config)) {
    if (row.kind == nullptr && row.name == name)
      return load_table(description_.names.*name, {0, static_cast<std::uint64_t>(row.shape[0])}, row.shape[1]);
  }
  return {};
}

std::vector<at::Tensor> WeightSource::load_matrices(std::vector<std::string> TensorNames::* kind) {
  std::vector<at::Tensor> all;
  for (const ModelParameter& row : model_parameters(description_.config)) {
    if (row.kind == kind && kind != nullptr)
      all.push_back(
          load_table(row.name_in(description_.names), {0, static_cast<std::uint64_t>(row.shape[0])}, row.shape[1]));
  }
  return all;
}

at::Tensor WeightSource::load_per_layer_table() {
  const ModelConfig& config = description_.config;
  if (config.per_layer_width == 0) return {};
  const auto most = static_cast<std::uint64_t>(config.per_layer_vocab);
  const IndexRange rows{std::min(partition_.vocab.begin, most), std::min(partition_.vocab.end, most)};
  {
    const std::lock_guard lock(mutex_);
    used_.insert(description_.names.per_layer_table);  // a shard may have no rows of it
  }
  return load_table(description_.names.per_layer_table, rows, config.num_hidden_layers * config.per_layer_width);
}

at::Tensor WeightSource::load_per_layer_projection() {
  return tp_rank_ > 0 ? at::Tensor() : load_matrix(&TensorNames::per_layer_projection);
}

at::Tensor WeightSource::load_per_layer_norm() {
  if (tp_rank_ > 0) return {};
  return load_whole(description_.names.per_layer_norm, {description_.config.per_layer_width});
}

}  // namespace magister
