// Statistics of verdicts; see judge_summary.h. Rows whose parse is not ok are counted apart and are in no share.
#include "tasks/judge_summary.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace magister {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr double kZ = 1.959963984540054;  // 97.5 % of the normal distribution

double total(const Confusion& matrix) {
  double sum = 0;
  for (const auto& row : matrix) {
    for (const std::uint64_t count : row) sum += static_cast<double>(count);
  }
  return sum;
}

struct Margins {
  double observed = 0;
  std::vector<double> first, second;
};

Margins margins(const Confusion& matrix) {
  const double n = total(matrix);
  Margins out{0, std::vector<double>(matrix.size(), 0.0), std::vector<double>(matrix.size(), 0.0)};
  for (std::size_t i = 0; i < matrix.size(); ++i) {
    for (std::size_t j = 0; j < matrix.size(); ++j) {
      const double share = static_cast<double>(matrix[i][j]) / n;
      if (i == j) out.observed += share;
      out.first[i] += share;
      out.second[j] += share;
    }
  }
  return out;
}

double beyond_chance(double observed, double expected) { return expected >= 1 ? kNone : (observed - expected) / (1 - expected); }

nlohmann::ordered_json interval(std::uint64_t hits, std::uint64_t trials) {
  const auto [low, high] = wilson_interval(hits, trials);
  return {{"count", hits}, {"of", trials}, {"share", trials == 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(static_cast<double>(hits) / static_cast<double>(trials))},
          {"wilson95", {low, high}}};
}

nlohmann::ordered_json number_or_null(double value) { return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json(); }

nlohmann::ordered_json agreement(const std::vector<JudgedRow>& rows, std::size_t num_classes) {
  Confusion matrix(num_classes, std::vector<std::uint64_t>(num_classes, 0));
  std::uint64_t hits = 0, trials = 0;
  for (const JudgedRow& row : rows) {
    if (row.label < 0 || row.parse != 0) continue;
    ++matrix[static_cast<std::size_t>(row.label)][static_cast<std::size_t>(row.verdict)];
    hits += row.label == row.verdict;
    ++trials;
  }
  if (trials == 0) return {};
  return {{"agrees", interval(hits, trials)}, {"confusion_label_by_verdict", matrix},
          {"cohens_kappa", number_or_null(cohens_kappa(matrix))}, {"scotts_pi", number_or_null(scotts_pi(matrix))}};
}

// Both orders of each record; the second's verdict is about the exchanged answers.
nlohmann::ordered_json order_effects(const std::vector<JudgedRow>& rows) {
  std::map<std::uint64_t, std::pair<const JudgedRow*, const JudgedRow*>> pairs;
  std::uint64_t first_position = 0, sound = 0;
  for (const JudgedRow& row : rows) {
    (row.swapped ? pairs[row.pair].second : pairs[row.pair].first) = &row;
    if (row.parse != 0) continue;
    ++sound;
    first_position += row.verdict == 0;
  }
  std::uint64_t consistent = 0, both = 0, prefers_a = 0;
  double preference = 0;
  for (const auto& [number, pair] : pairs) {
    if (pair.first == nullptr || pair.second == nullptr || pair.first->parse != 0 || pair.second->parse != 0) continue;
    ++both;
    consistent += pair.first->verdict != pair.second->verdict;
    const double p = (pair.first->probability_first + 1 - pair.second->probability_first) / 2;
    preference += p;
    prefers_a += p > 0.5;
  }
  return {{"consistent", interval(consistent, both)}, {"first_position", interval(first_position, sound)},
          {"prefers_a", interval(prefers_a, both)}, {"mean_preference_a", number_or_null(both == 0 ? kNone : preference / static_cast<double>(both))}};
}

// Correct, incorrect, not attempted: F1 is the harmonic mean of the share of correct ones and of that among the attempted.
nlohmann::ordered_json three_way(const std::vector<std::uint64_t>& counts) {
  const std::uint64_t attempted = counts[0] + counts[1], all = attempted + counts[2];
  const double correct = all == 0 ? kNone : static_cast<double>(counts[0]) / static_cast<double>(all);
  const double given = attempted == 0 ? kNone : static_cast<double>(counts[0]) / static_cast<double>(attempted);
  return {{"correct_given_attempted", interval(counts[0], attempted)}, {"f1", number_or_null(2 * correct * given / (correct + given))}};
}

}  // namespace

std::pair<double, double> wilson_interval(std::uint64_t hits, std::uint64_t trials) {
  if (trials == 0) return {0.0, 1.0};
  const double n = static_cast<double>(trials), p = static_cast<double>(hits) / n, z2 = kZ * kZ;
  const double centre = (p + z2 / (2 * n)) / (1 + z2 / n);
  const double half = kZ / (1 + z2 / n) * std::sqrt(p * (1 - p) / n + z2 / (4 * n * n));
  return {std::max(0.0, centre - half), std::min(1.0, centre + half)};
}

double cohens_kappa(const Confusion& matrix) {
  const Margins m = margins(matrix);
  double expected = 0;
  for (std::size_t i = 0; i < matrix.size(); ++i) expected += m.first[i] * m.second[i];
  return beyond_chance(m.observed, expected);
}

double scotts_pi(const Confusion& matrix) {
  const Margins m = margins(matrix);
  double expected = 0;
  for (std::size_t i = 0; i < matrix.size(); ++i) expected += std::pow((m.first[i] + m.second[i]) / 2, 2);
  return beyond_chance(m.observed, expected);
}

double auroc(const std::vector<std::pair<double, bool>>& score_and_truth) {
  std::vector<std::pair<double, bool>> sorted = score_and_truth;
  std::sort(sorted.begin(), sorted.end());
  double positives = 0, negatives = 0, wins = 0;
  for (std::size_t begin = 0; begin < sorted.size();) {
    std::size_t end = begin;
    double equal_positives = 0, equal_negatives = 0;
    for (; end < sorted.size() && sorted[end].first == sorted[begin].first; ++end) (sorted[end].second ? equal_positives : equal_negatives) += 1;
    wins += equal_positives * (negatives + equal_negatives / 2);
    positives += equal_positives;
    negatives += equal_negatives;
    begin = end;
  }
  return positives == 0 || negatives == 0 ? kNone : wins / (positives * negatives);
}

nlohmann::ordered_json summarize(const std::vector<JudgedRow>& rows, const std::vector<std::string>& classes, const SummaryKind& kind) {
  std::vector<std::uint64_t> counts(classes.size(), 0), parses(4, 0);
  std::vector<std::pair<double, bool>> likelihoods;
  double scores = 0;
  for (const JudgedRow& row : rows) {
    ++parses[std::min<std::size_t>(row.parse, 3)];
    if (row.parse != 0) continue;
    ++counts[static_cast<std::size_t>(row.verdict)];
    scores += row.expected;
    if (row.has_likelihood) likelihoods.emplace_back(row.likelihood, row.verdict == 0);
  }
  const std::uint64_t sound = parses[0];
  nlohmann::ordered_json verdicts = nlohmann::ordered_json::object();
  for (std::size_t c = 0; c < classes.size(); ++c) verdicts[classes[c]] = interval(counts[c], sound);
  nlohmann::ordered_json summary = {
      {"rows", rows.size()},
      {"parse", {{"ok", parses[0]}, {"low_mass", parses[1]}, {"unparsed", parses[2]}, {"truncated", parses[3]}}},
      {"verdicts", verdicts}};
  if (kind.scores) summary["mean_expected_score"] = number_or_null(sound == 0 ? kNone : scores / static_cast<double>(sound));
  if (classes.size() == 3 && classes.back() == "not_attempted") summary["three_way"] = three_way(counts);
  if (kind.pairs) summary["pairs"] = order_effects(rows);
  if (const auto labels = agreement(rows, classes.size()); !labels.is_null()) summary["labels"] = labels;
  if (!likelihoods.empty()) summary["auroc_of_likelihood"] = number_or_null(auroc(likelihoods));
  return summary;
}

}  // namespace magister
