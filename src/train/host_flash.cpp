// See host_flash.h. Source: Dao, FlashAttention-2, arXiv 2307.08691, algorithms 1 and 2.
#include "train/host_flash.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <limits>

namespace magister {
namespace {

// One sequence's rows of [T, heads, E], repeated for H heads: f32 [H, L, E].
at::Tensor rows_by_head(const at::Tensor& x_THE, std::int64_t begin, std::int64_t length, std::int64_t heads) {
  const at::Tensor x_HLE = x_THE.narrow(0, begin, length).to(at::kFloat).transpose(0, 1);
  return x_HLE.size(0) == heads ? x_HLE : x_HLE.repeat_interleave(heads / x_HLE.size(0), 0);
}

// Gradients of repeated heads are added up: [H, L, E] -> bf16 [L, heads, E].
at::Tensor rows_by_token(const at::Tensor& x_HLE, std::int64_t heads) {
  const at::Tensor sum_HLE = x_HLE.size(0) == heads ? x_HLE : x_HLE.unflatten(0, {heads, x_HLE.size(0) / heads}).sum(1);
  return sum_HLE.transpose(0, 1).to(at::kBFloat16);
}

// [H, L, L]; keys that a query does not see have -infinity.
at::Tensor visible_scores(const at::Tensor& q_HLE, const at::Tensor& k_HLE, const HostFlash& attention) {
  const std::int64_t length = q_HLE.size(1);
  at::Tensor hidden_LL = at::ones({length, length}, at::kBool).triu(1);
  if (attention.window > 0) hidden_LL = hidden_LL | at::ones({length, length}, at::kBool).tril(-attention.window);
  return (at::matmul(q_HLE, k_HLE.transpose(1, 2)) * attention.scale)
      .masked_fill(hidden_LL, -std::numeric_limits<double>::infinity());
}

}  // namespace

HostFlash::Forward HostFlash::forward(const at::Tensor& q_THE, const at::Tensor& k_TKE, const at::Tensor& v_TKE) const {
  const c10::NoGradGuard no_graph;
  const std::int64_t H = q_THE.size(1);
  std::vector<at::Tensor> outputs, sums;
  for (std::size_t s = 0; s + 1 < cu_seqlens.size(); ++s) {
    const std::int64_t begin = cu_seqlens[s], length = cu_seqlens[s + 1] - begin;
    const auto rows = [&](const at::Tensor& x) { return rows_by_head(x, begin, length, H); };
    const at::Tensor scores_HLL = visible_scores(rows(q_THE), rows(k_TKE), *this);
    sums.push_back(at::logsumexp(scores_HLL, -1));
    outputs.push_back(rows_by_token(at::matmul(at::exp(scores_HLL - sums.back().unsqueeze(2)), rows(v_TKE)), H));
  }
  return {at::cat(outputs, 0), at::cat(sums, 1)};
}

HostFlash::Gradients HostFlash::backward(const at::Tensor& gradient_THE, const at::Tensor& q_THE,
                                         const at::Tensor& k_TKE, const at::Tensor& v_TKE,
                                         const Forward& forward) const {
  const c10::NoGradGuard no_graph;
  const std::int64_t H = q_THE.size(1), K = k_TKE.size(1);
  std::vector<at::Tensor> of_q, of_k, of_v;
  for (std::size_t s = 0; s + 1 < cu_seqlens.size(); ++s) {
    const std::int64_t begin = cu_seqlens[s], length = cu_seqlens[s + 1] - begin;
    const auto rows = [&](const at::Tensor& x) { return rows_by_head(x, begin, length, H); };
    const at::Tensor q_HLE = rows(q_THE), k_HLE = rows(k_TKE), gradient_HLE = rows(gradient_THE);
    const at::Tensor shares_HLL =
        at::exp(visible_scores(q_HLE, k_HLE, *this) - forward.sums_HT.narrow(1, begin, length).unsqueeze(2));
    const at::Tensor along_HL1 = (gradient_HLE * rows(forward.out_THE)).sum(2, true);
    const at::Tensor of_scores_HLL =
        shares_HLL * (at::matmul(gradient_HLE, rows(v_TKE).transpose(1, 2)) - along_HL1) * scale;
    of_q.push_back(rows_by_token(at::matmul(of_scores_HLL, k_HLE), H));
    of_k.push_back(rows_by_token(at::matmul(of_scores_HLL.transpose(1, 2), q_HLE), K));
    of_v.push_back(rows_by_token(at::matmul(shares_HLL.transpose(1, 2), gradient_HLE), K));
  }
  return {at::cat(of_q, 0), at::cat(of_k, 0), at::cat(of_v, 0)};
}

}  // namespace magister
