#include "model/gpu/expert_products.h"

#include <ATen/ATen.h>

#include <cstring>
#include <vector>

#include "magister/device/upload.h"
#include "model/gpu/grouped_product_kernel.h"
#include "model/gpu/product_formats.h"

namespace magister::gpu {
namespace {

bool is_same(const StoredWeight& a, const StoredWeight& b) {
  return a.row_bytes == b.row_bytes && a.N == b.N && a.K == b.K && a.G == b.G && a.lead == b.lead &&
         a.offset == b.offset && a.half_scales == b.half_scales;
}

}  // namespace

std::optional<ExpertProducts> joined_experts(const GpuLayer& layer, GpuLinear GpuExpert::* kind, at::Device device) {
  const GpuLinear& first = layer.experts.front().*kind;
  ExpertProducts all{.weight = {}, .places_X = {}, .bits = 16, .group = 0, .aligned = true};
  if (first.fp8_NK.defined()) all.bits = 8;
  if (first.is_quantized()) {
    all.bits = static_cast<int>(first.scheme.bits());
    all.group = static_cast<int>(first.scheme.group);
  }
  std::vector<ExpertPlace> places;
  for (std::int64_t x = 0; x < layer.shape.num_experts - layer.shape.num_shared_experts; ++x) {
    const GpuLinear& expert = layer.experts[static_cast<std::size_t>(x)].*kind;
    if (expert.fp8_NK.defined() != first.fp8_NK.defined() || !(expert.scheme == first.scheme)) return std::nullopt;
    StoredWeight weight = expert.stored();
    places.push_back(
        {weight.rows, weight.scales, weight.offsets, data<float>(expert.bias_N), data<float>(expert.fp8_scales_1N)});
    set_group(weight, all.group);
    all.aligned = all.aligned && is_aligned(weight, all.bits);
    if (x == 0) all.weight = weight;
    if (!is_same(weight, all.weight)) return std::nullopt;
  }
  all.weight.rows = nullptr;
  all.weight.scales = all.weight.offsets = nullptr;
  const auto bytes = static_cast<std::int64_t>(places.size() * sizeof(ExpertPlace));
  at::Tensor host_X = at::empty({bytes}, at::kByte);
  std::memcpy(host_X.data_ptr(), places.data(), static_cast<std::size_t>(bytes));
  all.places_X = upload(host_X, device);
  return all;
}

}  // namespace magister::gpu
