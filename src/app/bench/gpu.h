// bench on a GPU: the device's own limits, and a model's own code paths.
#pragma once

#include <nlohmann/json.hpp>

#include "app/bench/bench.h"

namespace magister {

// Runs gemm, copy, read, prefill, teacher, decode, judge or layer; bench.h lists the fields. Throws Error(kUsage) for
// another `what`.
nlohmann::ordered_json run_gpu_bench(const BenchOptions& options);

}  // namespace magister
