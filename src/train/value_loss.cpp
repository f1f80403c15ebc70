// Computed in f64: a row is a few numbers compared with its hidden state.
#include "magister/train/value_loss.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "magister/core/error.h"
#include "magister/device/upload.h"

namespace magister {
namespace {

struct Row {
  double loss = 0, value = 0;
};

double softplus(double z) { return std::max(z, 0.0) + std::log1p(std::exp(-std::abs(z))); }

// gradient_L: by the row's numbers.
Row bce(double z, double label, double* gradient_L) {
  const double p = z >= 0 ? 1 / (1 + std::exp(-z)) : std::exp(z) / (1 + std::exp(z));
  gradient_L[0] = p - label;
  return {softplus(z) - label * z, p};
}

Row histogram(const double* z_L, std::int64_t L, double label, double* gradient_L) {
  const double most = *std::max_element(z_L, z_L + L);
  double sum = 0, value = 0;
  for (std::int64_t j = 0; j < L; ++j) sum += gradient_L[j] = std::exp(z_L[j] - most);
  for (std::int64_t j = 0; j < L; ++j) {
    gradient_L[j] /= sum;
    value += gradient_L[j] * static_cast<double>(j) / static_cast<double>(L - 1);
  }
  const auto atom = static_cast<std::int64_t>(std::lround(label * static_cast<double>(L - 1)));
  gradient_L[atom] -= 1;
  return {most + std::log(sum) - z_L[atom], value};
}

}  // namespace

ValueLoss value_loss(const ValueOptions& options, const std::vector<ValueText>& texts, const at::Tensor& hidden_RD,
                     const at::Tensor& head_LD, double scale) {
  const std::int64_t L = head_LD.size(0);
  const at::Tensor hidden = hidden_RD.to(at::kDouble), head = head_LD.to(at::kDouble);
  const at::Tensor values_RL = download(hidden.mm(head.t())).contiguous();
  at::Tensor gradient_RL = at::empty_like(values_RL);
  const double* z = values_RL.const_data_ptr<double>();
  double* gradient = gradient_RL.mutable_data_ptr<double>();
  ValueLoss sum;
  for (const ValueText& text : texts) {
    MAGISTER_ASSERT(text.label >= 0 && text.label <= 1 && !text.rows.empty());
    const double weight = 1 / static_cast<double>(text.rows.size());
    sum.label += text.label;
    for (std::size_t i = 0; i < text.rows.size(); ++i, z += L, gradient += L) {
      const Row row = options.loss == ValueOptions::Loss::kHistogram ? histogram(z, L, text.label, gradient)
                                                                     : bce(*z, text.label, gradient);
      sum.loss += scale * weight * row.loss;
      sum.value += weight * row.value;
      for (std::int64_t j = 0; j < L; ++j) gradient[j] *= scale * weight;
    }
  }
  gradient_RL = upload(gradient_RL, hidden.device());
  sum.hidden_gradient_RD = gradient_RL.mm(head).to(at::kFloat);
  sum.head_gradient_LD = gradient_RL.t().mm(hidden).to(at::kFloat);
  return sum;
}

}  // namespace magister
