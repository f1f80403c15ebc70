// See routes.h. Plain loops over a token's logits; they cost little compared with an expert's products.
#include "magister/model/routes.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace magister {

void choose_experts(const float* logits, std::int64_t num_experts, std::int64_t k, bool normed, std::int32_t* experts,
                    float* weights) {
  // NaN is compared as the smallest number, because it would otherwise be kept wherever it is met first.
  const auto comparable = [&](std::int64_t x) {
    return std::isnan(logits[x]) ? -std::numeric_limits<float>::infinity() : logits[x];
  };
  for (std::int64_t i = 0; i < k; ++i) {
    std::int32_t best = -1;
    for (std::int32_t x = 0; x < num_experts; ++x) {
      if (std::find(experts, experts + i, x) != experts + i) continue;
      if (best < 0 || comparable(x) > comparable(best)) best = x;
    }
    experts[i] = best;
  }
  std::sort(experts, experts + k);
  // In f64 and in a fixed order, so that the sum does not depend on a library's vector code.
  const double maximum = *std::max_element(logits, logits + num_experts);
  const auto weight = [&](std::int64_t x) { return std::exp(static_cast<double>(logits[x]) - maximum); };
  double sum = 0;
  for (std::int64_t x = 0; x < num_experts; ++x) {
    if (!normed || std::binary_search(experts, experts + k, static_cast<std::int32_t>(x)) || std::isnan(logits[x]))
      sum += weight(x);
  }
  for (std::int64_t i = 0; i < k; ++i) weights[i] = static_cast<float>(weight(experts[i]) / sum);
}

Routes choose_experts(const at::Tensor& logits_TX, std::int64_t k, bool normed) {
  const std::int64_t T = logits_TX.size(0), X = logits_TX.size(1);
  Routes routes{at::empty({T, k}, at::kInt), at::empty({T, k}, at::kFloat)};
  for (std::int64_t t = 0; t < T; ++t) {
    choose_experts(logits_TX.const_data_ptr<float>() + t * X, X, k, normed,
                   routes.experts_Tk.data_ptr<std::int32_t>() + t * k, routes.weights_Tk.data_ptr<float>() + t * k);
  }
  return routes;
}

ExpertGroups group_by_expert(const at::Tensor& experts_Tk, std::int64_t num_experts) {
  ExpertGroups out;
  const std::int64_t N = experts_Tk.numel();
  const auto* experts = experts_Tk.const_data_ptr<std::int32_t>();
  out.first.assign(static_cast<std::size_t>(num_experts) + 1, 0);
  for (std::int64_t i = 0; i < N; ++i) ++out.first[static_cast<std::size_t>(experts[i]) + 1];
  for (std::size_t x = 1; x < out.first.size(); ++x) out.first[x] += out.first[x - 1];
  std::vector<std::int64_t> next(out.first.begin(), out.first.end() - 1);
  out.entry.resize(static_cast<std::size_t>(N));
  out.row_of.resize(static_cast<std::size_t>(N));
  for (std::int64_t i = 0; i < N; ++i) {
    const std::int64_t row = next[static_cast<std::size_t>(experts[i])]++;
    out.entry[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(i);
    out.row_of[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(row);
  }
  return out;
}

}  // namespace magister
