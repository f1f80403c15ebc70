#include "run/planned_weights.h"

#include <fmt/format.h>

#include <cstdint>
#include <optional>

#include "magister/core/units_of_measure.h"
#include "magister/io/checkpoint/stored_quantization.h"
#include "magister/model/layer_shape.h"
#include "magister/model/parameter_table.h"
#include "magister/model/partition.h"
#include "magister/model/weights.h"
#include "magister/runtime/memory_plan.h"

namespace magister {
namespace {

// True if no columns of a shard, in any layer, begin inside a group of weights that share a scale.
bool is_aligned(const ModelConfig& config, std::int64_t group, int tp_size) {
  for (int rank = 1; rank < tp_size; ++rank) {
    const Partition of_model = partition_for(config, rank, tp_size);
    for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
      const Partition part = layer_partition(config, of_model, layer);
      const auto values = static_cast<std::uint64_t>(shape_of(config, of_model, layer).value_dim());
      const bool has_mlp = !config.is_sparse(layer) || config.dense_beside_experts;
      for (const std::uint64_t first :
           {part.heads.begin * values, has_mlp ? part.mlp.begin : 0, config.is_sparse(layer) ? part.expert.begin : 0,
            config.is_sparse(layer) ? part.shared_expert.begin : 0}) {
        if (first % static_cast<std::uint64_t>(group) != 0) return false;
      }
    }
  }
  return true;
}

// The weights of the routed experts' products, without their biases.
std::uint64_t num_expert_weights(const ModelConfig& config) {
  std::uint64_t sum = 0;
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    for (const LayerParameter& row : layer_parameters(config, layer)) {
      const bool routed = row.expert >= 0 && row.expert < config.num_experts;
      if (routed && row.product != FusedProduct::kNone) sum += num_elements(row.shape);
    }
  }
  return sum;
}

}  // namespace

std::string alignment_note(const ModelConfig& config, const QuantScheme& scheme, int tp_size) {
  if (!scheme.on() || scheme.group == 0 || tp_size == 1) return "";
  const auto aligned = [&](int size) { return is_aligned(config, scheme.group, size); };
  if (aligned(tp_size)) return "";
  std::string sizes;
  for (const int size : working_tp_sizes(config, 16)) {
    if (aligned(size)) sizes += fmt::format("{}{}", sizes.empty() ? "" : ", ", size);
  }
  return fmt::format(
      "  groups of {} do not divide evenly over {} devices ({} columns of the MLP are {:.10g} groups): shards that "
      "begin inside a group read the whole of it for its scale, and the weights stay those of one device; no group is "
      "cut with {} devices\n",
      scheme.group, tp_size, config.intermediate_size,
      static_cast<double>(config.intermediate_size) / static_cast<double>(scheme.group), sizes);
}

std::string formats_table(const ModelConfig& config, const std::vector<int>& sizes, bool on_gpus) {
  struct Format {
    const char* name;
    at::ScalarType dtype;
    QuantScheme scheme;
  };
  const Format formats[] = {{"f32", at::kFloat, {}},
                            {"bf16, f16", at::kBFloat16, {}},
                            {"int8, one scale", at::kBFloat16, {QuantType::kInt8, 0}},
                            {"int8, groups of 128", at::kBFloat16, {QuantType::kInt8, 128}},
                            {"int4, groups of 128", at::kBFloat16, {QuantType::kInt4, 128}},
                            {"int4, groups of 32", at::kBFloat16, {QuantType::kInt4, 32}}};
  std::string out = fmt::format("  {:<24}", "weights per device");
  for (const int size : sizes) out += fmt::format("{:>12}", fmt::format("on {}", size));
  for (const Format& format : formats) {
    out += fmt::format("\n    {:<22}", format.name);
    for (const int size : sizes)
      out += fmt::format("{:>12}", decimal_bytes(model_bytes(config, format.dtype, size, format.scheme, on_gpus)));
  }
  return out + "\n";
}

std::string experts_line(const ModelConfig& config) {
  if (config.num_experts == 0) return "";
  return fmt::format("  experts   {} with {:.2f} B weights; a token takes {} and {:.2f} B parameters in all\n",
                     config.num_experts, 1e-9 * static_cast<double>(num_expert_weights(config)),
                     config.num_experts_per_tok, 1e-9 * static_cast<double>(config.parameters_a_token()));
}

bool keeps_mxfp4(const ModelSection& section) {
  const bool as_the_file_is = section.task.empty() && !section.random && section.config_task.empty() &&
                              section.adapter.empty() && section.adapter_task.empty() && section.quantization == "none";
  if (!as_the_file_is || (section.dtype != "auto" && section.dtype != "bf16")) return false;
  const std::optional<StoredQuantization> stored = stored_quantization(section.path);
  return stored && stored->method == "mxfp4";
}

std::string stored_line(const ModelSection& named, const ModelConfig& config, bool on_gpus) {
  const ModelSection section = named.placeholder();
  const std::optional<StoredQuantization> stored = stored_quantization(section.path);
  if (!stored) return "";
  const std::string read = on_gpus && keeps_mxfp4(named)
                               ? "a GPU holds the codes"
                               : "a run holds the numbers that they mean" +
                                     std::string(section.quantization == "none" ? "" : ", quantised again");
  if (stored->expert_bits == 0) return fmt::format("  file      codes of {}; {}\n", stored->method, read);
  const std::uint64_t codes = num_expert_weights(config);
  const double bytes =
      static_cast<double>(codes) * stored->expert_bits / 8 + static_cast<double>((config.num_parameters() - codes) * 2);
  return fmt::format("  file      {}: the experts' products in {} ({:.4g} bits a weight), the rest in 16 bits; {}\n",
                     decimal_bytes(static_cast<std::uint64_t>(bytes)), stored->method, stored->expert_bits, read);
}

}  // namespace magister
