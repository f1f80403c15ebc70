// Auroc: the exact area under the ROC curve of any number of scores, in bounded memory. It is the Mann-Whitney
// statistic with ties counted half.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "magister/run/spool.h"

namespace magister {

class Auroc {
 public:
  // More scores than max_in_memory (16 bytes each) are written as sorted runs to a temporary file in `directory`.
  explicit Auroc(std::string directory, std::size_t max_in_memory = 1 << 20);

  void add(double score, bool truth);
  std::uint64_t num_scores() const { return num_scores_; }
  // P(score of a positive > score of a negative); NaN if one kind is missing. Do not call add() after it.
  double value();

 private:
  struct Entry {
    double score;
    std::uint64_t truth;  // 0 or 1
    auto operator<=>(const Entry&) const = default;
  };
  void spill();

  std::string directory_;
  std::size_t max_in_memory_;
  std::uint64_t num_scores_ = 0;
  std::vector<Entry> entries_;
  std::optional<Spool> runs_;  // one after the other, each sorted
  std::vector<std::uint64_t> run_sizes_;
};

}  // namespace magister
