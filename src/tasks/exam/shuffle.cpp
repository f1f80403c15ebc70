#include "tasks/exam/shuffle.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "magister/core/splitmix64.h"

namespace magister {
namespace {

// A number below n, each with the same probability: draws that would favour small numbers are drawn again.
std::size_t below(std::uint64_t& state, std::size_t n) {
  const std::uint64_t limit = ~std::uint64_t{0} / n * n;
  for (;;) {
    const std::uint64_t drawn = splitmix64(state++);
    if (drawn < limit) return drawn % n;
  }
}

}  // namespace

std::vector<std::size_t> choice_order(std::uint64_t seed, std::string_view id, std::size_t n) {
  std::uint64_t state = splitmix64(seed ^ 0x73687566666c65ull);  // "shuffle"
  for (const char c : id) state = splitmix64(state ^ static_cast<unsigned char>(c));
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t i = n; i > 1; --i) std::swap(order[i - 1], order[below(state, i)]);
  return order;
}

void shuffle_choices(ExamItem& item, std::uint64_t seed) {
  if (item.kind != ItemKind::kChoice || item.key >= item.choices.size()) return;
  const std::vector<std::size_t> order = choice_order(seed, item.id, item.choices.size());
  std::vector<ItemChoice> choices;
  for (const std::size_t old : order) choices.push_back(std::move(item.choices[old]));
  item.choices = std::move(choices);
  item.key = static_cast<std::size_t>(std::find(order.begin(), order.end(), item.key) - order.begin());
}

KeyPositions key_positions(const std::vector<ExamItem>& items) {
  KeyPositions result;
  std::vector<double> expected;
  for (const ExamItem& item : items) {
    const std::size_t n = item.choices.size();
    if (item.kind != ItemKind::kChoice || item.key >= n) continue;
    if (n > expected.size()) {
      expected.resize(n);
      result.counts.resize(n);
    }
    ++result.counts[item.key];
    for (std::size_t i = 0; i < n; ++i) expected[i] += 1.0 / static_cast<double>(n);
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double difference = static_cast<double>(result.counts[i]) - expected[i];
    result.chi_square += difference * difference / expected[i];
  }
  result.degrees = expected.empty() ? 0 : expected.size() - 1;
  if (result.degrees > 0) result.p_value = chi_square_survival(result.chi_square, result.degrees);
  return result;
}

double chi_square_survival(double x, std::uint64_t degrees) {
  // Finite sums for whole numbers of degrees (Abramowitz & Stegun, "Handbook of Mathematical Functions", 26.4.4 and
  // 26.4.5): Q(x | 1) = erfc(sqrt(x / 2)), Q(x | 2) = exp(-x / 2), and a term for each two degrees more.
  const double half = x / 2;
  double sum = degrees % 2 == 1 ? std::erfc(std::sqrt(half)) : std::exp(-half);
  double term = degrees % 2 == 1 ? 2 * std::sqrt(half / M_PI) * std::exp(-half) : half * std::exp(-half);
  for (std::uint64_t d = degrees % 2 == 1 ? 3 : 4; d <= degrees; d += 2) {
    sum += term;
    term *= half / (static_cast<double>(d) / 2);
  }
  return std::min(1.0, sum);
}

}  // namespace magister
