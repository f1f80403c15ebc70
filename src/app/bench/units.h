// What benches on CPUs and GPUs share: the unit and the clock.
#pragma once

#include <functional>

#include "app/bench/bench.h"
#include "magister/model/transformer.h"

namespace magister {

// options.tokens ids without a pattern, divided into options.sequences.
PackedBatch probe_unit(const BenchOptions& options, std::int64_t vocab_size);

// Of `repeats` runs after a first one that warms up.
double median_seconds(int repeats, const std::function<void()>& body);

}  // namespace magister
