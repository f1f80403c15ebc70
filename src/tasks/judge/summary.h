// What the verdicts of a run say together: shares with Wilson intervals, agreement with labels, order effects of pairs.
// Sources: Cohen (1960); Scott (1955).
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tasks/judge/auroc.h"

namespace magister {

// matrix[i][j]: how often one rater said i and the other j.
using Confusion = std::vector<std::vector<std::uint64_t>>;
double cohens_kappa(const Confusion& matrix);  // NaN when chance alone agrees always
double scotts_pi(const Confusion& matrix);

// One judged prompt as the summary sees it.
struct JudgedRow {
  std::uint64_t sample = 0, record = 0;   // its number in the file, and its record's in the data set
  std::uint64_t pair = 0;                 // of pairs: number of what both orders are about
  std::int32_t verdict = -1, label = -1;  // -1: none
  std::uint8_t parse = 0;                 // ParseClass; all but ok are in no share
  bool swapped = false;
  double probability_first = 0;  // of class 0 among the classes
  double expected = 0;           // score of a rubric
  double likelihood = 0;         // the generator's mean log-probability, where there is one
  bool has_likelihood = false;
};

// What the rows are: pairs come as two orders of each; scores have a mean.
struct SummaryKind {
  bool pairs = false, scores = false;
};

// Rows come one by one in the order of their samples, and memory does not grow with their number.
class JudgeSummary {
 public:
  // classes: names in order. directory: for a temporary file, where there are likelihoods of more than a million rows.
  JudgeSummary(std::vector<std::string> classes, const SummaryKind& kind, std::string directory);

  void add(const JudgedRow& row);
  // Rows with this verdict, sound or not.
  std::uint64_t rows_with_verdict(std::int32_t verdict) const;
  std::uint64_t num_rows() const { return num_rows_; }
  // What is wrong when most rows have no verdict for want of probability; empty: nothing.
  std::string low_mass_warning() const;
  // For summary.json and the log. Nothing may be added after it.
  nlohmann::ordered_json json();

 private:
  // Both orders of a pair; the second's verdict is about the exchanged answers.
  struct OrderEffects {
    JudgedRow last;  // the row before, when it may be the first of a pair
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
