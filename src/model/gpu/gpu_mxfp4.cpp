// Finds the format by the bits that a number takes in the file, and starts the kernel.
#include "model/gpu/gpu_mxfp4.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <string>

#include "magister/model/gpu/gpu_mxfp4.h"
#include "magister/model/parameter_table.h"
#include "model/gpu/gpu_weights.h"
#include "model/gpu/pack_mxfp4_kernel.h"

namespace magister::gpu {
namespace {

constexpr std::int64_t kGroup = PackMxfp4::kGroup;

// In safetensors of gpt-oss, quantised experts have the type f32 and the bytes of their codes.
bool is_mxfp4(const TensorInfo& info, bool holds_codes) {
  if (info.type == StorageType::kMXFP4) return true;
  std::uint64_t numbers = 1;
  for (const std::int64_t size : info.shape) numbers *= static_cast<std::uint64_t>(size);
  return holds_codes && info.type == StorageType::kF32 && 8 * info.num_bytes < 5 * numbers;
}

// Bytes of a row's codes, and its groups.
struct Row {
  std::int64_t bytes, groups;
  Row(std::int64_t K, std::int64_t lead)
      : bytes((K + kGroup - 1) / kGroup * kGroup / 2), groups((lead + K - 1) / kGroup + 1) {}
  std::int64_t all_bytes() const { return bytes + 2 * groups; }
};

bool stores_experts_in_mxfp4(const ModelDescription& description, const TensorFile& file) {
  const ModelConfig& config = description.config;
  bool found = false;
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    if (!config.is_sparse(layer)) continue;
    for (std::int64_t x = 0; x < config.num_experts; ++x) {
      for (const LayerParameter& row : expert_parameters(config, x)) {
        if (row.product == FusedProduct::kNone) continue;
        const TensorInfo* const info =
            file.find(row.name_in(description.names.layers[static_cast<std::size_t>(layer)]));
        if (info == nullptr || !is_mxfp4(*info, config.fused_experts && file.dequantizes())) return false;
        found = true;
      }
    }
  }
  return found;
}

}  // namespace

bool keeps_mxfp4(const ModelDescription& description, const TensorFile& file, at::ScalarType dtype,
                 const QuantScheme& quantization) {
  // An adapter changes numbers, which then have no codes.
  const auto is_adapter = [](const std::string& path) { return path.ends_with("adapter_model.safetensors"); };
  return dtype == at::kBFloat16 && !quantization.on() &&
         std::none_of(file.paths().begin(), file.paths().end(), is_adapter) &&
         stores_experts_in_mxfp4(description, file);
}

bool to_mxfp4(GpuLinear& linear, std::int64_t lead, const Queue& queue) {
  if (!linear.weight_NK.defined() || linear.weight_NK.scalar_type() != at::kBFloat16 || linear.inputs == 0)
    return false;
  const std::int64_t N = linear.outputs, K = linear.inputs;
  const Row row(K, lead);
  const at::Tensor weight_NK = linear.weight_NK.contiguous();
  const auto options = weight_NK.options();
  const at::Tensor codes_NB = at::empty({N, row.bytes}, options.dtype(at::kByte)),
                   scales_NG = at::empty({N, row.groups}, options.dtype(at::kShort)),
                   inexact = at::zeros({1}, options.dtype(at::kInt));
  const PackMxfp4 kernel{data<Bf16>(weight_NK),
                         data<unsigned char>(codes_NB),
                         data<std::uint16_t>(scales_NG),
                         data<std::int32_t>(inexact),
                         N,
                         K,
                         row.groups,
                         lead};
  launch(kernel, kernel.shape(), queue);
  if (inexact.item<int>() != 0) return false;
  linear.codes_NB = codes_NB;
  linear.scales_NG = scales_NG;
  linear.scheme = {QuantType::kInt4, kGroup};
  linear.offset = kFloatCodes;
  linear.lead = lead;
  linear.half_scales = false;
  linear.weight_NK.reset();
  return true;
}

}  // namespace magister::gpu

namespace magister {

std::uint64_t gpu_weight_bytes(const ModelDescription& description, const TensorFile& file, at::ScalarType dtype,
                               int tp_rank, int tp_size, const QuantScheme& quantization) {
  const std::uint64_t bytes = weight_bytes(description, file, dtype, tp_rank, tp_size, quantization, true);
  return gpu::keeps_mxfp4(description, file, dtype, quantization)
             ? bytes - saved_by_mxfp4(description.config, tp_rank, tp_size)
             : bytes;
}

std::uint64_t saved_by_mxfp4(const ModelConfig& config, int tp_rank, int tp_size) {
  const IndexRange columns = partition_for(config, tp_rank, tp_size).expert;
  const auto D = config.hidden_size, F = static_cast<std::int64_t>(columns.size());
  if (F == 0) return 0;
  const std::int64_t codes = 2 * F * gpu::Row(D, 0).all_bytes() +
                             D * gpu::Row(F, static_cast<std::int64_t>(columns.begin) % gpu::kGroup).all_bytes(),
                     plain = 2 * 3 * D * F;
  std::int64_t experts = 0;
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    experts += config.is_sparse(layer) ? config.num_experts : 0;
  return static_cast<std::uint64_t>(experts * (plain - codes));
}

bool gpu_has_codes(const ModelDescription& description, const TensorFile& file, at::ScalarType dtype,
                   const QuantScheme& quantization) {
  return quantization.on() || gpu::keeps_mxfp4(description, file, dtype, quantization);
}

}  // namespace magister
