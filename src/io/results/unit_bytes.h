// The bytes of a unit in the columns of a results file, and their checksums; only this file defines which bytes they
// are. Consecutive units are read together in large pieces: the inputs of 2 million units take less than 0.3 s of CPU
// time.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "magister/core/types.h"
#include "magister/io/results/results_file.h"

namespace magister {

class ResultsColumns;

// kInputs: the data that planning writes and a unit is computed from (keys, places in the data set, tokens). kAll:
// inputs and results.
enum class UnitPart { kInputs, kAll };

// True for a column of a unit's inputs: those under /samples and /tokens.
bool is_input(const ColumnSpec& column);

// First samples and rows of consecutive units, and the end of the last: [units + 1] each.
struct UnitBorders {
  std::vector<std::uint64_t> samples, rows;
};
UnitBorders borders_of(const Unit& unit);
// Error(kData) for offsets that decrease. Local.
UnitBorders borders_of(const ResultsColumns& columns, IndexRange units);

// crc32c of each unit over its columns of samples, then of rows, each in the order of creation. Local; reads every byte
// once.
std::vector<std::uint32_t> unit_checksums(const ResultsColumns& columns, const UnitBorders& borders, UnitPart part);

// Calls visit(some consecutive units) in order: each time about 64 MiB of data and at most 65,536 units.
void for_each_batch(const ResultsColumns& columns, IndexRange units,
                    const std::function<void(IndexRange batch)>& visit);

}  // namespace magister
