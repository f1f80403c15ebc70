// JudgeLabels: a person's verdicts in the data set, as numbers of the judge's own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "magister/io/dataset/dataset.h"
#include "magister/parallel/communicator.h"
#include "magister/tasks/judge/scoring.h"
#include "tasks/judge/config.h"

namespace magister {

class JudgeLabels {
 public:
  JudgeLabels(const JudgeConfig& config, const std::vector<VerdictClass>& classes);

  bool are_given() const { return !field_.empty(); }
  // The verdict's number; nothing for null, which stands for "nobody has judged this". A verdict is known by its name or its
  // letter, in any case and with " " or "-" for "_"; yes and no also as true and false, 1 and 0, y and n; a score also as a
  // number. Throws Error(kData) with the record's place for anything else and for a record without the field.
  std::optional<std::int32_t> of(const Record& record) const;
  // Every record's label, before any work. Collective over world: each rank reads its part; throws the first fault on all.
  void check(const Communicator& world, const Dataset& dataset) const;

 private:
  std::string field_;
  std::vector<std::string> names_;
  std::vector<std::vector<std::string>> spellings_;  // by verdict, in small letters
};

}  // namespace magister
