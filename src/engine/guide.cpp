// Sums run in double over the tokens in a fixed order, so every shard draws the same token.
#include "magister/engine/guide.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "magister/core/error.h"
#include "magister/model/cpu/cpu_kernels.h"

namespace magister {
namespace {

template <typename Number>
double log_of_sum(std::span<const Number> values) {
  const double top = *std::max_element(values.begin(), values.end());
  double sum = 0;
  for (const double value : values) sum += std::exp(value - top);
  return top + std::log(sum);
}

// For a row with excluded tokens the kernel's result is not finite.
double log_of_row(std::span<const float> logits_V) {
  SoftmaxState state;
  cpu_kernels().logsumexp_step(logits_V.data(), static_cast<std::int64_t>(logits_V.size()), &state);
  return std::isfinite(state.sum) ? state.maximum + std::log(state.sum) : log_of_sum(logits_V);
}

// ln(1 - p + p exp(m)) with p = sigmoid(z) is softplus(m + z) - softplus(z). That difference loses digits if z is large
// (both are almost m + z and z) or very negative (both are almost 0). ln(1 + p (exp(m) - 1)) keeps them as long as
// exp(m) is finite, and m + ln(1 + (1 - p) (exp(-m) - 1)) if p is not small.
double bernoulli_offset(double multiplier, double z) {
  if (multiplier < 700) {
    const double p = z >= 0 ? 1 / (1 + std::exp(-z)) : std::exp(z) / (1 + std::exp(z));
    return std::log1p(p * std::expm1(multiplier));
  }
  if (z >= 0) return multiplier + std::log1p(std::exp(-z) / (1 + std::exp(-z)) * std::expm1(-multiplier));
  const auto softplus = [](double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); };
  return softplus(multiplier + z) - softplus(z);
}

double histogram_offset(double multiplier, std::span<const float> values_L) {
  std::vector<double> plain(values_L.begin(), values_L.end());
  // The largest number is subtracted first, because otherwise the multiplier could vanish next to it.
  const double top = *std::max_element(plain.begin(), plain.end());
  for (double& value : plain) value -= top;
  std::vector<double> tilted(plain);
  const auto last = static_cast<double>(values_L.size() - 1);
  for (std::size_t i = 0; i < tilted.size(); ++i) tilted[i] += multiplier * (static_cast<double>(i) / last);
  return log_of_sum<double>(tilted) - log_of_sum<double>(plain);
}

}  // namespace

double guide_offset(const GuideParams& params, std::span<const float> values_L) {
  const bool finite = std::all_of(values_L.begin(), values_L.end(), [](float z) { return std::isfinite(z); });
  if (!finite) return std::numeric_limits<double>::quiet_NaN();
  MAGISTER_ASSERT(params.form == GuideForm::kHistogram ? values_L.size() >= 2 : values_L.size() == 1);
  switch (params.form) {
    case GuideForm::kBernoulli:
      return bernoulli_offset(params.multiplier, values_L[0]);
    case GuideForm::kHistogram:
      return histogram_offset(params.multiplier, values_L);
    case GuideForm::kLogit:
    case GuideForm::kExpectation:
      break;
  }
  return params.multiplier * values_L[0];
}

double largest_offset(std::span<const GuidedToken> tokens) {
  const auto less = [](const GuidedToken& a, const GuidedToken& b) { return a.offset < b.offset; };
  return std::max_element(tokens.begin(), tokens.end(), less)->offset;
}

// With q = p exp(f) / Z on the tokens and Z = sum of p exp(f): KL = sum of q (f - ln Z). f - max f gives the same
// result, and ln p keeps its digits next to it for any f.
double guide_kl(std::span<const float> logits_V, std::span<const GuidedToken> tokens) {
  const double normaliser = log_of_row(logits_V);
  std::vector<float> logits_C;
  for (const GuidedToken& token : tokens) logits_C.push_back(logits_V[static_cast<std::size_t>(token.id)]);
  return guide_kl(logits_C, normaliser, tokens);
}

double guide_kl(std::span<const float> logits_C, double logsumexp, std::span<const GuidedToken> tokens) {
  MAGISTER_ASSERT(!tokens.empty() && tokens.size() == logits_C.size());
  const double top = largest_offset(tokens);
  std::vector<double> tilted;
  tilted.reserve(tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) tilted.push_back(logits_C[i] - logsumexp + (tokens[i].offset - top));
  const double log_z = log_of_sum<double>(tilted);
  double kl = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const double q = std::exp(tilted[i] - log_z);
    if (q > 0) kl += q * (tokens[i].offset - top - log_z);
  }
  return std::max(kl, 0.0);
}

}  // namespace magister
