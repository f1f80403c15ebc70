// Bytes of a shard's weights in memory, from the parameter table: exactly what WeightSource returns, or a GPU holds.
#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "magister/model/parameter_table.h"
#include "magister/model/transformer.h"
#include "magister/model/weights.h"
#include "model/cpu/kept_codes.h"
#include "model/gpu/gpu_latent.h"

namespace magister {
namespace {

// The format in which the file's codes of this product are kept; nothing if codes are made while loading, or if it is
// not quantised.
std::optional<CodeFormat> kept_codes(const std::vector<LayerParameter>& product, const TensorNames::Layer& names,
                                     const TensorFile& file, const QuantScheme& quantization, bool transposed) {
  if (!quantization.on() || transposed) return std::nullopt;
  std::vector<std::string> tensors;
  tensors.reserve(product.size());
  for (const LayerParameter& row : product) tensors.push_back(row.name_in(names));
  std::optional<CodeFormat> codes = common_code_format(file, tensors);
  if (codes && !quantization.keeps(*codes)) codes.reset();
  return codes;
}

bool holds_transposed(const ModelDescription& description, const std::vector<LayerParameter>& product) {
  const std::int64_t expert = product.front().expert;
  return description.names.transposed_products ||
         (description.config.fused_experts && expert >= 0 && expert < description.config.num_experts);
}

struct Sizes {
  const ModelConfig& config;
  Partition partition;
  at::ScalarType dtype;
  int tp_rank;
  const QuantScheme& quantization;
  bool on_gpu;
  HeadCounts heads{config.num_attention_heads, config.num_key_value_heads};
};

// numbers: of the second product of latents on this shard.
std::uint64_t latent_up_bytes(std::uint64_t numbers, const Sizes& sizes) {
  if (!sizes.on_gpu) return numbers * sizeof(float);
  const at::ScalarType type = activation_dtype(sizes.dtype);
  const LatentConfig& latent = *sizes.config.latent;
  const std::uint64_t keys = numbers / static_cast<std::uint64_t>(latent.nope_dim + latent.value_dim) *
                             static_cast<std::uint64_t>(latent.nope_dim);
  return (numbers + (gpu::latent_kernels_take(sizes.config, type) ? keys : 0)) * c10::elementSize(type);
}

std::uint64_t product_bytes(const std::vector<LayerParameter>& product, const Sizes& sizes,
                            const std::optional<CodeFormat>& kept) {
  const QuantScheme& quantization = sizes.quantization;
  std::uint64_t rows = 0;
  IndexRange columns;
  for (const LayerParameter& row : product) {
    const ShardSlice slice = slice_of(row.shape, row.division, sizes.partition, sizes.heads, sizes.tp_rank);
    rows += slice.rows.size();
    const auto first = static_cast<std::uint64_t>(row.first_column);
    columns = {first + slice.columns.begin, first + slice.columns.end};
  }
  if (product.front().product == FusedProduct::kLatentUp) return latent_up_bytes(rows * columns.size(), sizes);
  if (!quantization.on()) {
    const std::uint64_t scale = sizes.dtype == at::kFloat8_e4m3fn ? sizeof(float) : 0;  // one scale per row
    return rows * (columns.size() * c10::elementSize(sizes.dtype) + scale);
  }
  const QuantScheme scheme = kept ? quantization.of(*kept) : quantization;
  return scheme.bytes(static_cast<std::int64_t>(rows), columns, kept && kept->offset != CodeFormat::Offset::kMiddle);
}

// Bytes of a layer without its products: norms, biases and routers, in f32. On a GPU what chooses experts or keys is a
// product in the activations' dtype.
std::uint64_t other_layer_bytes(const std::vector<LayerParameter>& table, const Sizes& sizes) {
  using Names = TensorNames::Layer;
  std::uint64_t bytes = 0;
  for (const LayerParameter& row : table) {
    if (row.product != FusedProduct::kNone) continue;
    const bool chooses =
        row.name == &Names::router || row.name == &Names::shared_expert_gate || row.name == &Names::index_weights;
    bytes += c10::elementSize(sizes.on_gpu && chooses ? activation_dtype(sizes.dtype) : at::kFloat) *
             slice_of(row.shape, row.division, sizes.partition, sizes.heads, sizes.tp_rank).num_elements();
  }
  return bytes;
}

// Bytes of weights outside the layers: vectors in f32, tables in the weights' dtype.
std::uint64_t model_parameter_bytes(const Sizes& sizes) {
  std::uint64_t bytes = 0;
  const std::size_t table_bytes = c10::elementSize(sizes.dtype == at::kFloat8_e4m3fn ? at::kBFloat16 : sizes.dtype);
  for (const ModelParameter& row : model_parameters(sizes.config)) {
    bytes += slice_of(row.shape, row.division, sizes.partition, sizes.heads, sizes.tp_rank).num_elements() *
             (row.shape.size() == 1 ? sizeof(float) : table_bytes);
  }
  return bytes;
}

// description and file: nullptr if only the config is known.
std::uint64_t all_bytes(const Sizes& sizes, const ModelDescription* description, const TensorFile* file) {
  std::uint64_t bytes = model_parameter_bytes(sizes);
  // Bytes per layer of each kind - with experts, with a window, with keys of its own, with an indexer, with linear
  // attention, with an MLP of this size - while kept codes do not make layers differ.
  std::map<std::tuple<bool, bool, bool, bool, bool, std::int64_t>, std::optional<std::uint64_t>> alike;
  for (std::int64_t layer = 0; layer < sizes.config.num_hidden_layers; ++layer) {
    const ModelConfig& config = sizes.config;
    std::optional<std::uint64_t>& known =
        alike[{config.is_sparse(layer), config.slides(layer), config.has_own_kv(layer), config.chooses_keys(layer),
               config.is_linear(layer), config.mlp_widths_of(layer)}];
    if (known) {
      bytes += *known;
      continue;
    }
    const std::uint64_t before = bytes;
    const std::vector<LayerParameter> table = layer_parameters(sizes.config, layer);
    const Sizes of_layer{config,
                         layer_partition(config, sizes.partition, layer),
                         sizes.dtype,
                         sizes.tp_rank,
                         sizes.quantization,
                         sizes.on_gpu,
                         {config.heads_of(layer), config.kv_heads_of(layer)}};
    bytes += other_layer_bytes(table, of_layer);
    for (const std::vector<LayerParameter>& product : products_of(table)) {
      std::optional<CodeFormat> kept;
      if (file != nullptr)
        kept = kept_codes(product, description->names.layers[static_cast<std::size_t>(layer)], *file,
                          sizes.quantization, holds_transposed(*description, product));
      bytes += product_bytes(product, of_layer, kept);
    }
    if (file == nullptr || !sizes.quantization.on()) known = bytes - before;
  }
  return bytes;
}

}  // namespace

std::uint64_t weight_bytes(const ModelConfig& config, at::ScalarType dtype, int tp_rank, int tp_size,
                           const QuantScheme& quantization, bool on_gpu) {
  const Partition partition = partition_for(config, tp_rank, tp_size);
  return all_bytes({config, partition, dtype, tp_rank, quantization, on_gpu}, nullptr, nullptr);
}

std::uint64_t weight_bytes(const ModelDescription& description, const TensorFile& file, at::ScalarType dtype,
                           int tp_rank, int tp_size, const QuantScheme& quantization, bool on_gpu) {
  const Partition partition = partition_for(description.config, tp_rank, tp_size);
  return all_bytes({description.config, partition, dtype, tp_rank, quantization, on_gpu}, &description, &file);
}

std::uint64_t host_copy_bytes(const ModelConfig& config, at::ScalarType dtype) {
  if (config.encoder) return 0;
  std::uint64_t numbers = 0;
  for (const ModelParameter& row : model_parameters(config)) {
    const bool is_table = row.name == &TensorNames::embed_tokens || row.name == &TensorNames::lm_head;
    // A copy has no rows of embeddings behind those of the outputs.
    if (row.kind == nullptr && is_table)
      numbers += num_elements({std::min(row.shape.front(), config.vocab_size), row.shape.back()});
  }
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    for (const LayerParameter& row : layer_parameters(config, layer)) {
      const bool is_packed = row.product != FusedProduct::kNone && row.product != FusedProduct::kLatentUp;
      numbers += is_packed ? num_elements(row.shape) : 0;
    }
  }
  return numbers * c10::elementSize(dtype);
}

std::uint64_t model_bytes(const ModelConfig& config, at::ScalarType dtype, int tp_size, const QuantScheme& quantization,
                          bool on_gpu) {
  std::uint64_t largest = 0;
  for (int rank = 0; rank < tp_size; ++rank) {
    largest = std::max(largest, weight_bytes(config, dtype, rank, tp_size, quantization, on_gpu));
  }
  return largest;
}

QuantizedProducts quantized_products(const ModelDescription& description, const TensorFile& file,
                                     const QuantScheme& quantization) {
  QuantizedProducts count;
  for (std::int64_t layer = 0; quantization.on() && layer < description.config.num_hidden_layers; ++layer) {
    for (const std::vector<LayerParameter>& product : products_of(layer_parameters(description.config, layer))) {
      if (product.front().product == FusedProduct::kLatentUp) continue;
      const bool kept = kept_codes(product, description.names.layers[static_cast<std::size_t>(layer)], file,
                                   quantization, holds_transposed(description, product))
                            .has_value();
      ++(kept ? count.kept : count.made);
    }
  }
  return count;
}

}  // namespace magister
