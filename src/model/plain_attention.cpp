// The formulas of first_visible_key() and alibi_term() for all pairs of positions, and the choice of keys.
#include "magister/model/plain_attention.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <limits>
#include <tuple>
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

at::Tensor chosen_keys(const at::Tensor& q_LHE, const at::Tensor& k_LE, const at::Tensor& weights_LH,
                       std::int64_t top_k) {
  const c10::NoGradGuard no_graph;
  const std::int64_t L = q_LHE.size(0);
  if (L <= top_k) return {};
  at::Tensor scores_LL = at::zeros({L, L}, q_LHE.options());
  for (std::int64_t head = 0; head < q_LHE.size(1); ++head)
    scores_LL += at::relu(at::mm(q_LHE.select(1, head), k_LE.t())) * weights_LH.narrow(1, head, 1);
  const at::Tensor past_LL = at::ones({L, L}, q_LHE.options().dtype(at::kBool)).tril();
  scores_LL.masked_fill_(past_LL.logical_not(), -std::numeric_limits<double>::infinity());
  const at::Tensor best_Lk = std::get<1>(at::sort(scores_LL, true, -1, true)).narrow(1, 0, top_k);
  return at::zeros_like(past_LL).scatter_(1, best_Lk, true).logical_and_(past_LL);
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
