// Whole sequences of a unit in passes: all at once, or in parts where the device has no memory for so many.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "magister/core/types.h"

namespace magister {

class SequencePasses {
 public:
  // Sequences [begin, end) of the unit through the model in one pass; false: the job wants to stop. May throw c10::OutOfMemoryError.
  using Pass = std::function<bool(IndexRange)>;

  // divides: whether a pass that finds no memory may be cut in two: the shards of a group must all do the same.
  explicit SequencePasses(bool divides) : divides_(divides) {}

  // Tokens of a pass, unless one sequence has more; lowered where a pass finds no memory.
  void limit(std::int64_t most_tokens) { most_tokens_ = most_tokens; }

  // Passes over sequences with so many tokens, in their order. False: the job wants to stop. Throws Error(kConfig) where the device has no
  // memory for what cannot be divided.
  bool run(const std::vector<std::int64_t>& lengths, const Pass& pass) {
    return run(lengths, {0, lengths.size()}, pass);
  }

 private:
  bool run(const std::vector<std::int64_t>& lengths, IndexRange range, const Pass& pass);

  bool divides_;
  std::int64_t most_tokens_ = std::numeric_limits<std::int64_t>::max();
};

}  // namespace magister
