// The units of an unfinished results file against their checksums: of their inputs when these have been written, of all of them when a run goes on.
#pragma once

#include <functional>

#include "io/results/columns.h"
#include "magister/parallel/communicator.h"

namespace magister {

// The units of which this rank is to read the bytes, where each is read by one. Local.
IndexRange share_of(const Communicator& world, std::uint64_t num_units);

// Writes the checksums of this rank's share of the units' inputs, where the file keeps them; all ranks' inputs are there. Local.
void write_input_checksums(const Communicator& world, ResultsColumns& columns);

// Reads this rank's share of the units again. -> what is to do: `pending` and the committed units whose bytes changed, which are told and
// whose flags are taken back on disk. Error(kData) for inputs that changed, Error(kStopped) when stop() is true on a rank.
// Collective over world.
UnitSet still_to_do(const Communicator& world, ResultsColumns& columns, const UnitSet& pending,
                    const std::function<bool()>& stop);

}  // namespace magister
