// log(sum of exp(x)) in double, for logits or log-probabilities in nats; -infinity for an empty span.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

namespace magister {

template <typename Number>
double log_sum_exp(std::span<const Number> values) {
  if (values.empty()) return -std::numeric_limits<double>::infinity();
  const auto top = static_cast<double>(*std::max_element(values.begin(), values.end()));
  if (std::isinf(top)) return top;
  double sum = 0;
  for (const Number value : values) sum += std::exp(static_cast<double>(value) - top);
  return top + std::log(sum);
}

}  // namespace magister
