// The unit that benches run on CPUs and GPUs alike.
#pragma once

#include "magister/model/transformer.h"
#include "magister/tasks/bench.h"

namespace magister {

// options.tokens ids without a pattern, divided into options.sequences.
PackedBatch probe_unit(const BenchOptions& options, std::int64_t vocab_size);

}  // namespace magister
