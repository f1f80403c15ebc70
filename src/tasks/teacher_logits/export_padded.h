// `export --to padded-hdf5`, a format of a teacher's results alone. task.cpp offers it (TaskKind::exports).
#pragma once

#include <string>

#include "magister/io/results/export.h"

namespace magister {

// The layout of older scripts: logits_values f16 [N, L, k], logits_indices i32 [N, L, k] and
// seq_lengths i32 [N] in the new HDF5 file `out`, L the longest sample; rows after a sample's end are 0. Values are raw
// logits (log-probability + logsumexp), rounded to f16. <out>.json describes the numbers, their shape, and the root
// attributes. Error(kData) for other results and for sampled rows. Local.
void export_padded(const ResultsReader& file, const ExportedColumns& columns, const std::string& out);

}  // namespace magister
