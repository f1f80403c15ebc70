// Compares the units of an unfinished results file with their checksums. Written: those of the inputs, when planning
// ends. Compared: all, when a run resumes.
#pragma once

#include <functional>

#include "io/results/columns.h"
#include "magister/parallel/communicator.h"

namespace magister {

// The units that this rank reads; the ranks' shares are disjoint. Local.
IndexRange share_of(const Communicator& world, std::uint64_t num_units);

// Writes the checksums of this rank's share of the units' inputs, if the file has the column; all ranks' inputs must be
// in the file. Local.
void write_input_checksums(const Communicator& world, ResultsColumns& columns);

// Reads this rank's share of the units again. Returns the pending units: `pending` and the committed units whose bytes
// changed, which are reported and whose flags are cleared on disk. Error(kData) for changed inputs, Error(kStopped) if
// stop() returns true on a rank. Collective over world.
UnitSet still_to_do(const Communicator& world, ResultsColumns& columns, const UnitSet& pending,
                    const std::function<bool()>& stop);

}  // namespace magister
