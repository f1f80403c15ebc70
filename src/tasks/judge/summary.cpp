// Statistics of verdicts. Rows whose parse is not ok are counted separately and are in no share.
#include "tasks/judge/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "magister/core/wilson.h"

namespace magister {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

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

double beyond_chance(double observed, double expected) {
  return expected >= 1 ? kNone : (observed - expected) / (1 - expected);
}

nlohmann::ordered_json interval(std::uint64_t hits, std::uint64_t trials) {
  const auto [low, high] = wilson_interval(static_cast<double>(hits), static_cast<double>(trials));
  return {{"count", hits},
          {"of", trials},
          {"share", trials == 0 ? nlohmann::ordered_json()
                                : nlohmann::ordered_json(static_cast<double>(hits) / static_cast<double>(trials))},
          {"wilson95", {low, high}}};
}

nlohmann::ordered_json number_or_null(double value) {
  return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json();
}

// Correct, incorrect, not attempted: F1 is the harmonic mean of the share of correct answers among all and among the
// attempted.
nlohmann::ordered_json three_way(const std::vector<std::uint64_t>& counts) {
  const std::uint64_t attempted = counts[0] + counts[1], all = attempted + counts[2];
  const double correct = all == 0 ? kNone : static_cast<double>(counts[0]) / static_cast<double>(all);
  const double given = attempted == 0 ? kNone : static_cast<double>(counts[0]) / static_cast<double>(attempted);
  return {{"correct_given_attempted", interval(counts[0], attempted)},
          {"f1", number_or_null(2 * correct * given / (correct + given))}};
}

}  // namespace

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

void JudgeSummary::OrderEffects::add(const JudgedRow& row) {
  if (row.parse == 0) {
    ++sound;
    first_position += row.verdict == 0;
  }
  if (!row.swapped) {
    last = row;
    waiting = true;
    return;
  }
  const bool pair = std::exchange(waiting, false) && last.pair == row.pair && last.parse == 0 && row.parse == 0;
  if (!pair) return;
  ++both;
  consistent += last.verdict != row.verdict;
  // A is first as given and second when exchanged, so a judge that looks only at the position prefers neither.
  const double for_a = last.probability_first - row.probability_first;
  constexpr double kEqual = 1e-9;
  preference += (for_a + 1) / 2;
  prefers_a += for_a > kEqual;
  undecided += std::abs(for_a) <= kEqual;
}

nlohmann::ordered_json JudgeSummary::OrderEffects::json() const {
  return {{"consistent", interval(consistent, both)},
          {"first_position", interval(first_position, sound)},
          {"prefers_a", interval(prefers_a, both - undecided)},
          {"undecided", undecided},
          {"mean_preference_a", number_or_null(both == 0 ? kNone : preference / static_cast<double>(both))}};
}

JudgeSummary::JudgeSummary(std::vector<std::string> classes, const SummaryKind& kind, std::string directory)
    : classes_(std::move(classes)),
      kind_(kind),
      counts_(classes_.size(), 0),
      verdicts_(classes_.size(), 0),
      parses_(5, 0),
      labels_(classes_.size(), std::vector<std::uint64_t>(classes_.size(), 0)),
      likelihoods_(std::move(directory)) {}

std::uint64_t JudgeSummary::rows_with_verdict(std::int32_t verdict) const {
  return verdicts_.at(static_cast<std::size_t>(verdict));
}

void JudgeSummary::add(const JudgedRow& row) {
  ++num_rows_;
  ++parses_[std::min<std::size_t>(row.parse, parses_.size() - 1)];
  const auto verdict = static_cast<std::size_t>(row.verdict);
  if (row.verdict >= 0) ++verdicts_.at(verdict);
  if (kind_.pairs) orders_.add(row);
  if (row.parse != 0) return;
  ++counts_.at(verdict);
  scores_ += row.expected;
  if (row.has_likelihood) likelihoods_.add(row.likelihood, row.verdict == 0);
  if (row.label < 0) return;
  ++labels_.at(static_cast<std::size_t>(row.label)).at(verdict);
  ++labelled_;
  agreeing_ += row.label == row.verdict;
}

std::string JudgeSummary::low_mass_warning() const {
  if (2 * parses_[1] <= num_rows_) return "";
  return fmt::format(
      "{} of {} prompts leave the verdicts together less than low_mass of the probability (the judge wants to write "
      "something else there, so these rows are in no share and have no vote); let it write with `method: decode` and "
      "read the verdict from its reply (`read: word`, `max_new_tokens`), or look at its chat template and at how the "
      "prompt ends",
      parses_[1], num_rows_);
}

nlohmann::ordered_json JudgeSummary::json() {
  const std::uint64_t sound = parses_[0];
  nlohmann::ordered_json verdicts = nlohmann::ordered_json::object();
  for (std::size_t c = 0; c < classes_.size(); ++c) verdicts[classes_[c]] = interval(counts_[c], sound);
  nlohmann::ordered_json summary = {{"rows", num_rows_},
                                    {"parse",
                                     {{"ok", parses_[0]},
                                      {"low_mass", parses_[1]},
                                      {"unparsed", parses_[2]},
                                      {"truncated", parses_[3]},
                                      {"tie", parses_[4]}}},
                                    {"verdicts", verdicts}};
  if (kind_.scores)
    summary["mean_expected_score"] = number_or_null(sound == 0 ? kNone : scores_ / static_cast<double>(sound));
  if (classes_.size() == 3 && classes_.back() == "not_attempted") summary["three_way"] = three_way(counts_);
  if (kind_.pairs) summary["pairs"] = orders_.json();
  if (labelled_ > 0) {
    summary["labels"] = {{"agrees", interval(agreeing_, labelled_)},
                         {"confusion_label_by_verdict", labels_},
                         {"cohens_kappa", number_or_null(cohens_kappa(labels_))},
                         {"scotts_pi", number_or_null(scotts_pi(labels_))}};
  }
  if (const std::string warning = low_mass_warning(); !warning.empty()) summary["warning"] = warning;
  if (likelihoods_.num_scores() > 0) summary["auroc_of_likelihood"] = number_or_null(likelihoods_.value());
  return summary;
}

}  // namespace magister
