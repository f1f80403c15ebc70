// Summary of a run's verdicts: shares with Wilson intervals, agreement with labels, order effects of pairs. Sources:
// Cohen (1960); Scott (1955).
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tasks/judge/auroc.h"

namespace magister {

// matrix[i][j]: number of cases in which one rater said i and the other j.
using Confusion = std::vector<std::vector<std::uint64_t>>;
double cohens_kappa(const Confusion& matrix);  // NaN if chance alone always agrees
double scotts_pi(const Confusion& matrix);

// One judged prompt, with what the summary needs.
struct JudgedRow {
  std::uint64_t sample = 0, record = 0;   // its number in the file, and its record's in the data set
  std::uint64_t pair = 0;                 // for pairs: a number that both orders share
  std::int32_t verdict = -1, label = -1;  // -1: none
  std::uint8_t parse = 0;                 // ParseClass; shares count only ok
  bool swapped = false;
  double probability_first = 0;  // of class 0 among the classes
  double expected = 0;           // score of a rubric
  double likelihood = 0;         // the generator's mean log-probability, if has_likelihood
  bool has_likelihood = false;
};

// pairs: rows come as two orders of each pair; scores: verdicts have a mean.
struct SummaryKind {
  bool pairs = false, scores = false;
};

// Rows are added one by one in the order of their samples; memory does not grow with their number.
class JudgeSummary {
 public:
  // classes: names in order. directory: for a temporary file, which likelihoods of more than a million rows need.
  JudgeSummary(std::vector<std::string> classes, const SummaryKind& kind, std::string directory);

  void add(const JudgedRow& row);
  // Number of rows with this verdict, sound or not.
  std::uint64_t rows_with_verdict(std::int32_t verdict) const;
  std::uint64_t num_rows() const { return num_rows_; }
  // A warning if most rows have no verdict because its probability was too low; otherwise empty.
  std::string low_mass_warning() const;
  // For summary.json and the log. Do not call add() after it.
  nlohmann::ordered_json json();

 private:
  // Compares both orders of a pair; the second order's verdict is about the exchanged answers.
  struct OrderEffects {
    JudgedRow last;  // the row before, if it may be the first of a pair
    bool waiting = false;
    std::uint64_t first_position = 0, sound = 0, consistent = 0, both = 0, prefers_a = 0, undecided = 0;
    double preference = 0;
    void add(const JudgedRow& row);
    nlohmann::ordered_json json() const;
  };

  const std::vector<std::string> classes_;
  const SummaryKind kind_;
  std::uint64_t num_rows_ = 0, labelled_ = 0, agreeing_ = 0;
  std::vector<std::uint64_t> counts_, verdicts_, parses_;  // sound rows by verdict; all rows by verdict; rows by parse
  Confusion labels_;                                       // of sound rows: label by verdict
  double scores_ = 0;
  OrderEffects orders_;
  Auroc likelihoods_;
};

}  // namespace magister
