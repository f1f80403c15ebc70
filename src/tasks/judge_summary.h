// What the verdicts of a run say together: shares with Wilson intervals, agreement with labels, order effects of pairs.
// Sources: Wilson (1927); Cohen (1960); Scott (1955); the AUROC is the Mann-Whitney statistic with ties counted half.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace magister {

// Two-sided 95 % interval of a proportion.
std::pair<double, double> wilson_interval(std::uint64_t hits, std::uint64_t trials);

// matrix[i][j]: how often one rater said i and the other j.
using Confusion = std::vector<std::vector<std::uint64_t>>;
double cohens_kappa(const Confusion& matrix);  // NaN when chance alone agrees always
double scotts_pi(const Confusion& matrix);

// P(score of a positive > score of a negative); NaN without one of either kind.
double auroc(const std::vector<std::pair<double, bool>>& score_and_truth);

// One judged prompt as the summary sees it.
struct JudgedRow {
  std::uint64_t record = 0;
  std::uint64_t pair = 0;                 // of pairs: number of what both orders are about
  std::int32_t verdict = -1, label = -1;  // -1: none
  std::uint8_t parse = 0;                 // 0: ok; others are in no share
  bool swapped = false;
  double probability_first = 0;           // of class 0 among the classes
  double expected = 0;                    // score of a rubric
  double likelihood = 0;                  // the generator's mean log-probability, where there is one
  bool has_likelihood = false;
};

// What the rows are: pairs come as two orders of each; scores have a mean.
struct SummaryKind {
  bool pairs = false, scores = false;
};

// classes: names in order. JSON for summary.json and the log.
nlohmann::ordered_json summarize(const std::vector<JudgedRow>& rows, const std::vector<std::string>& classes, const SummaryKind& kind);

}  // namespace magister
