// JudgeLabels: reads a person's verdicts from the data set as numbers of the judge's verdicts.
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
  // The verdict's number; nullopt for null, which means that nobody has judged the record. A verdict is given by its
  // name or its letter, in any case and with " " or "-" for "_". yes and no may also be true and false, 1 and 0, y and
  // n; a score may be a number. Throws Error(kData) with the record's place for anything else and for a record without
  // the field.
  std::optional<std::int32_t> of(const Record& record) const;
  // Checks every record's label before any work. Each rank reads its part; the first error is thrown on all ranks.
  // Collective over world.
  void check(const Communicator& world, const Dataset& dataset) const;

 private:
  std::string field_;
  std::vector<std::string> names_;
  std::vector<std::vector<std::string>> spellings_;  // by verdict, in small letters
};

}  // namespace magister
