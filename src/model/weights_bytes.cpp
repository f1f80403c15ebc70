// What a shard's weights take in memory, from the parameter table: exactly what WeightSource hands out.
#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <optional>

#include "magister/model/parameter_table.h"
#include "magister/model/weights.h"
#include "model/cpu/kept_codes.h"

namespace magister {
namespace {

// Codes that the products of a layer keep, in the order of kProducts; nothing where they are made or not quantised.
using LayerCodes = std::array<std::optional<CodeFormat>, std::size(kProducts)>;

LayerCodes kept_codes(const std::vector<LayerParameter>& table, const TensorNames::Layer& names, const TensorFile& file,
                      const QuantScheme& quantization) {
  LayerCodes codes;
  if (!quantization.on()) return codes;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    std::vector<std::string> tensors;
    for (const LayerParameter& row : table) {
      if (row.product == kProducts[i]) tensors.push_back(names.*row.name);
    }
    codes[i] = common_code_format(file, tensors);
    if (codes[i] && !quantization.keeps(*codes[i])) codes[i].reset();
  }
  return codes;
}

struct Sizes {
  const ModelConfig& config;
  const Partition& partition;
  at::ScalarType dtype;
  int tp_rank;
  const QuantScheme& quantization;
};

// The products of a layer.
std::uint64_t product_bytes(const std::vector<LayerParameter>& table, const Sizes& sizes, const LayerCodes& codes) {
  const QuantScheme& quantization = sizes.quantization;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    std::uint64_t rows = 0;
    IndexRange columns;
    for (const LayerParameter& row : table) {
      if (row.product != kProducts[i]) continue;
      const ShardSlice slice = slice_of(row.shape, row.division, sizes.partition, sizes.config, sizes.tp_rank);
      rows += slice.rows.size();
      columns = slice.columns;
    }
    if (!quantization.on()) {
      const std::uint64_t scale = sizes.dtype == at::kFloat8_e4m3fn ? sizeof(float) : 0;  // one a row
      bytes += rows * (columns.size() * c10::elementSize(sizes.dtype) + scale);
      continue;
    }
    const std::optional<CodeFormat>& kept = codes[i];
    const QuantScheme scheme = kept ? quantization.of(*kept) : quantization;
    bytes +=
        scheme.bytes(static_cast<std::int64_t>(rows), columns, kept && kept->offset != CodeFormat::Offset::kMiddle);
  }
  return bytes;
}

// Everything but the products: norms and biases in f32, tables in the weights' type.
std::uint64_t other_bytes(const std::vector<LayerParameter>& table, const Sizes& sizes) {
  const auto elements = [&](const auto& row) {
    return slice_of(row.shape, row.division, sizes.partition, sizes.config, sizes.tp_rank).num_elements();
  };
  std::uint64_t layer = 0, bytes = 0;
  for (const LayerParameter& row : table)
    layer += row.product == FusedProduct::kNone ? elements(row) * sizeof(float) : 0;
  const std::size_t table_bytes = c10::elementSize(sizes.dtype == at::kFloat8_e4m3fn ? at::kBFloat16 : sizes.dtype);
  for (const ModelParameter& row : model_parameters(sizes.config)) {
    bytes += elements(row) * (row.shape.size() == 1 ? sizeof(float) : table_bytes);
  }
  return static_cast<std::uint64_t>(sizes.config.num_hidden_layers) * layer + bytes;
}

}  // namespace

std::uint64_t weight_bytes(const ModelConfig& config, at::ScalarType dtype, int tp_rank, int tp_size,
                           const QuantScheme& quantization) {
  const Partition partition = partition_for(config, tp_rank, tp_size);
  const std::vector<LayerParameter> table = layer_parameters(config);
  const Sizes sizes{config, partition, dtype, tp_rank, quantization};
  return static_cast<std::uint64_t>(config.num_hidden_layers) * product_bytes(table, sizes, {}) +
         other_bytes(table, sizes);
}

std::uint64_t weight_bytes(const ModelDescription& description, const TensorFile& file, at::ScalarType dtype,
                           int tp_rank, int tp_size, const QuantScheme& quantization) {
  const Partition partition = partition_for(description.config, tp_rank, tp_size);
  const std::vector<LayerParameter> table = layer_parameters(description.config);
  const Sizes sizes{description.config, partition, dtype, tp_rank, quantization};
  std::uint64_t bytes = other_bytes(table, sizes);
  for (const TensorNames::Layer& names : description.names.layers) {
    bytes += product_bytes(table, sizes, kept_codes(table, names, file, quantization));
  }
  return bytes;
}

std::uint64_t model_bytes(const ModelConfig& config, at::ScalarType dtype, int tp_size,
                          const QuantScheme& quantization) {
  std::uint64_t largest = 0;
  for (int rank = 0; rank < tp_size; ++rank) {
    largest = std::max(largest, weight_bytes(config, dtype, rank, tp_size, quantization));
  }
  return largest;
}

QuantizedProducts quantized_products(const ModelDescription& description, const TensorFile& file,
                                     const QuantScheme& quantization) {
  QuantizedProducts count;
  const std::vector<LayerParameter> table = layer_parameters(description.config);
  for (const TensorNames::Layer& names : description.names.layers) {
    if (!quantization.on()) break;
    for (const std::optional<CodeFormat>& format : kept_codes(table, names, file, quantization))
      ++(format ? count.kept : count.made);
  }
  return count;
}

}  // namespace magister
