// The bytes of a unit in the columns of a results file, and their checksums: the one place that says which they are. Consecutive units are
// read in large pieces, many units a read: the inputs of 2 million take less than 0.3 s of CPU time.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "magister/core/types.h"
#include "magister/io/results/results_file.h"

namespace magister {

class ResultsColumns;

// kInputs: what planning writes and a unit is computed from (keys, places in the data set, tokens). kAll: these and its results.
enum class UnitPart { kInputs, kAll };

// Of the columns of units: those under /samples and /tokens.
bool is_input(const ColumnSpec& column);

// Samples and rows where consecutive units begin, and where the last of them ends: [units + 1] each.
struct UnitBorders {
  std::vector<std::uint64_t> samples, rows;
};
UnitBorders borders_of(const Unit& unit);
// Error(kData) for offsets that go back. Local.
UnitBorders borders_of(const ResultsColumns& columns, IndexRange units);

// crc32c of each unit over its columns of samples, then of rows, each in the order of creation. Local; reads every byte once.
std::vector<std::uint32_t> unit_checksums(const ResultsColumns& columns, const UnitBorders& borders, UnitPart part);

// visit(some consecutive units), in order: about 64 MiB of bytes, and no more than memory is there for their borders.
void for_each_batch(const ResultsColumns& columns, IndexRange units,
                    const std::function<void(IndexRange batch)>& visit);

}  // namespace magister
