// The formulas of first_visible_key() and alibi_term() for all pairs of positions.
#include "magister/model/plain_attention.h"

#include <ATen/ATen.h>

#include <vector>

namespace magister {

at::Tensor visible_keys(std::int64_t queries, std::int64_t keys, const LayerShape& shape, at::Device device) {
  const auto i64 = at::TensorOptions().dtype(at::kLong).device(device);
  const at::Tensor query = at::arange(keys - queries, keys, i64).unsqueeze(1), key = at::arange(keys, i64).unsqueeze(0);
  const at::Tensor past = key <= query;
  const std::int64_t window = shape.sliding_window;
  if (window == 0) return past;
  if (shape.chunked_windows) return past & (at::floor_divide(query, window) == at::floor_divide(key, window));
  return past & (query - key < window);
}

at::Tensor alibi_terms(std::int64_t queries, std::int64_t keys, const LayerShape& shape, at::Device device) {
  const at::Tensor position_L = at::arange(keys, at::TensorOptions().dtype(at::kFloat)),
                   slope_H11 = at::tensor(shape.alibi_slopes, at::kFloat).view({-1, 1, 1});
  const auto terms = [&](const at::Tensor& at_HL) {
    return at_HL.unsqueeze(1) - at_HL.narrow(1, keys - queries, queries).unsqueeze(2);
  };
  if (!shape.alibi_in_bf16) return (slope_H11 * terms(position_L.unsqueeze(0))).to(device);
  const at::Tensor rounded_HL = (slope_H11.squeeze(2).to(at::kBFloat16) * position_L.to(at::kBFloat16)).to(at::kFloat);
  return (terms(rounded_HL) * shape.attention_scale).to(device);
}

at::Tensor head_layer_norm(const at::Tensor& x_THE, const at::Tensor& weight_E, const at::Tensor& bias_E, double eps) {
  return at::layer_norm(x_THE.to(at::kFloat), weight_E.sizes(), weight_E, bias_E, eps);
}

}  // namespace magister
