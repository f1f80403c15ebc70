// Faults in order of their finding, and the rules of rows by kind of results.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "io/results/reader.h"
#include "magister/core/error.h"
#include "magister/io/results/tools.h"

namespace magister {

class FaultList {
 public:
  template <typename... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    if (++count_ <= kMaxFaults) faults_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }
  std::uint64_t count() const { return count_; }
  std::vector<std::string> take() {
    if (count_ > kMaxFaults) faults_.push_back(fmt::format("and {} more faults", count_ - kMaxFaults));
    return std::move(faults_);
  }

 private:
  std::vector<std::string> faults_;
  std::uint64_t count_ = 0;
};

// magister.teacher_logits: every column that INTERFACE section 4 names, with its type. False when one is missing, and no
// row can be checked.
bool check_teacher_columns(const ResultsReader& file, FaultList& faults);
// Positions of the samples in the data set: the file's slice, in order, without a hole; keys are UTF-8.
void check_teacher_samples(const ResultsReader& file, FaultList& faults);
// The rules of each row of one committed unit. Memory: about 4 MiB whatever the unit's size.
void check_teacher_rows(const ResultsReader& file, const Unit& unit, FaultList& faults);

// magister.generate: the same for packed texts. False also for in-flight texts, whose slots have no rules.
bool check_generate_columns(const ResultsReader& file, FaultList& faults);
// Every record of the slice with its texts in order; reasons; UTF-8.
void check_generate_samples(const ResultsReader& file, FaultList& faults);
void check_generate_rows(const ResultsReader& file, const Unit& unit, FaultList& faults);

// magister.judge.
bool check_judge_columns(const ResultsReader& file, FaultList& faults);
void check_judge_samples(const ResultsReader& file, FaultList& faults);
void check_judge_rows(const ResultsReader& file, const Unit& unit, FaultList& faults);

}  // namespace magister
