// Confidence interval of a proportion. Source: Wilson (1927).
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>

namespace magister {

// Two-sided 95 % interval for `hits` of `trials`. hits may be a sum of values in [0, 1]: their mean varies no more than
// the mean of zeros and ones with the same expectation, so the interval is then at least as wide as needed.
inline std::pair<double, double> wilson_interval(double hits, double trials) {
  constexpr double kZ = 1.959963984540054;  // 97.5 % quantile of the normal distribution
  if (trials == 0) return {0.0, 1.0};
  const double p = hits / trials, z2 = kZ * kZ;
  const double centre = (p + z2 / (2 * trials)) / (1 + z2 / trials);
  const double half = kZ / (1 + z2 / trials) * std::sqrt(p * (1 - p) / trials + z2 / (4 * trials * trials));
  return {std::max(0.0, centre - half), std::min(1.0, centre + half)};
}

}  // namespace magister
