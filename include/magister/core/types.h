// Plain types that every module shares: token ids, half-open ranges and units. A struct that two sibling modules need
// moves down to this file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace magister {

using TokenId = std::int32_t;

// Half-open range [begin, end).
struct IndexRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t size() const { return end - begin; }
  bool operator==(const IndexRange&) const = default;
};

// A unit of work that is computed and committed as a whole: consecutive samples of the plan.
// Example: unit 3 = samples [40, 57) = rows [8012, 10050) of the results file.
struct Unit {
  std::uint64_t index = 0;
  IndexRange samples;
  IndexRange rows;  // packed token rows, equal to offset[samples.begin] .. offset[samples.end]
};

}  // namespace magister
