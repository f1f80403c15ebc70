// Vectors by layer on the fast path and in plain ATen code.
// Source: transformers Gemma4TextModel (get_per_layer_inputs, project_per_layer_inputs) and Gemma4TextDecoderLayer.
#include "model/cpu/per_layer_inputs.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <vector>

#include "magister/model/cpu/cpu_kernels.h"
#include "magister/model/plain_activation.h"
#include "model/cpu/decoder_layer.h"

namespace magister {
namespace {

constexpr float kHalf = static_cast<float>(1.0 / std::numbers::sqrt2);

at::Tensor plain_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return weight * (x * at::rsqrt(x.square().mean(-1, true) + eps));
}

}  // namespace

void PerLayerInputs::compute(const float* hidden_TD, const PackedBatch& batch, std::int64_t begin, std::int64_t end,
                             float eps, float* out_TNP, ThreadPool* pool) const {
  const CpuKernels& kernels = cpu_kernels();
  const std::int64_t rows = end - begin, all = layers * width;
  float* out_RNP = out_TNP + begin * all;
  if (norm_P.defined()) {
    const std::int64_t D = projection.in_features();
    linear_tile(hidden_TD + begin * D, D, rows, projection, out_RNP, all, false, pool);
    kernels.scale(out_RNP, 1.0f / std::sqrt(static_cast<float>(D)), rows * all);
    kernels.rms_norm(out_RNP, width, norm_P.const_data_ptr<float>(), eps, out_RNP, width, rows * layers, width);
  } else {
    std::memset(out_RNP, 0, static_cast<std::size_t>(rows * all) * sizeof(float));
  }
  std::vector<float> row(static_cast<std::size_t>(all));
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t given = batch.token_ids_T.const_data_ptr<std::int32_t>()[begin + r];
    const auto id = static_cast<std::uint64_t>(given < num_ids ? given : 0);
    if (id < ids.begin || id >= ids.end) continue;
    table.copy_row(static_cast<std::int64_t>(id - ids.begin), row.data());
    for (std::int64_t i = 0; i < all; ++i) out_RNP[r * all + i] += row[static_cast<std::size_t>(i)] * table_scale;
  }
  kernels.scale(out_RNP, kHalf, rows * all);
}

at::Tensor PerLayerInputs::reference(const at::Tensor& hidden_TD, const PackedBatch& batch, double eps) const {
  const at::Tensor given_T = batch.token_ids_T.to(at::kLong),
                   ids_T = at::where(given_T < num_ids, given_T, at::zeros_like(given_T)) -
                           static_cast<std::int64_t>(ids.begin);
  const at::Tensor mine_T = (ids_T >= 0) & (ids_T < static_cast<std::int64_t>(ids.size()));
  at::Tensor out_TX = at::zeros({hidden_TD.size(0), layers * width});
  if (ids.size() > 0)
    out_TX = at::embedding(table.plain_weight(), ids_T.masked_fill(mine_T.logical_not(), 0)).to(at::kFloat) *
             mine_T.unsqueeze(1) * table_scale;
  if (norm_P.defined()) {
    const at::Tensor product_TX =
        plain_product(hidden_TD, projection) / std::sqrt(static_cast<double>(hidden_TD.size(1)));
    out_TX = out_TX + plain_norm(product_TX.view({-1, layers, width}), norm_P, eps).view(out_TX.sizes());
  }
  return out_TX * kHalf;
}

float* LayerTail::addend(const float* input_RD, const float* vector_RP, std::int64_t stride, std::int64_t rows,
                         std::int64_t D, float eps, float* scratch, ThreadPool* pool) const {
  const std::int64_t P = gate.out_features();
  float *pairs_R2P = scratch, *active_RP = pairs_R2P + rows * 2 * P, *out_RD = active_RP + rows * P;
  linear_tile(input_RD, D, rows, gate, pairs_R2P, 2 * P, false, pool);
  for (std::int64_t r = 0; r < rows; ++r) std::copy_n(vector_RP + r * stride, P, pairs_R2P + r * 2 * P + P);
  cpu_kernels().activate[static_cast<std::size_t>(activation)](pairs_R2P, 2 * P, active_RP, P, rows, P);
  linear_tile(active_RP, P, rows, output, out_RD, D, false, pool);
  cpu_kernels().rms_norm(out_RD, D, norm_D.const_data_ptr<float>(), eps, out_RD, D, rows, D);
  return out_RD;
}

void LayerTail::run(float* hidden_RD, const float* vector_RP, std::int64_t stride, std::int64_t rows, std::int64_t D,
                    float eps, float* scratch, ThreadPool* pool) const {
  if (adds()) {
    const float* out_RD = addend(hidden_RD, vector_RP, stride, rows, D, eps, scratch, pool);
    for (std::int64_t i = 0; i < rows * D; ++i) hidden_RD[i] += out_RD[i];
  }
  if (scalar != 1) cpu_kernels().scale(hidden_RD, scalar, rows * D);
}

at::Tensor LayerTail::reference(const at::Tensor& hidden_TD, const at::Tensor& vector_TP, double eps) const {
  const at::Tensor active_TP = activated(plain_product(hidden_TD, gate), activation) * vector_TP;
  return plain_norm(plain_product(active_TP, output), norm_D, eps);
}

}  // namespace magister
