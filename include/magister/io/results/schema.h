// ResultsSchema: the rules for the results of a task, beyond those that every results file keeps. Each task defines its
// own (tasks/<name>/check.cpp) and names it in its TaskKind; `check` receives all of them and knows no task.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "magister/core/types.h"
#include "magister/io/results/export.h"
#include "magister/io/results/reader.h"

namespace magister {

// Faults in the order in which they are found: the first kMaxFaults, and the number of the rest.
class FaultList {
 public:
  static constexpr std::size_t kMaxFaults = 100;
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

// All functions are local. They are called in this order if the structure of the file is sound.
struct ResultsSchema {
  const char* format = "";           // root attribute `format`: "magister.<kind of task>"
  std::uint64_t newest_version = 1;  // of the format; older versions are accepted, too
  // Checks that every column of the format exists with its type. False if one is missing; then rows are not checked.
  bool (*columns)(const ResultsReader& file, FaultList& faults) = nullptr;  // null: no rules; so for the next two
  void (*samples)(const ResultsReader& file, FaultList& faults) = nullptr;
  // Checks the rows of one committed unit, in bounded memory.
  void (*rows)(const ResultsReader& file, const Unit& unit, FaultList& faults) = nullptr;
  ExportedColumns exported{};  // facts about the columns for exports
};

}  // namespace magister
