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
  std::int32_t verdict = -1, label = -1;  // -1: none
  bool low_mass = false, swapped = false;
  double probability_first = 0;           // of class 0 among the classes
  double likelihood = 0;                  // the generator's mean log-probability, where there is one
  bool has_likelihood = false;
};

// classes: names in order. pairs: rows come as two orders of each record. JSON for summary.json and the log.
nlohmann::ordered_json summarize(const std::vector<JudgedRow>& rows, const std::vector<std::string>& classes, bool pairs);

}  // namespace magister
