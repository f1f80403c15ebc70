// bench on a GPU: the device's own limits, and the real code paths of a model over them.
#pragma once

#include <nlohmann/json.hpp>

#include "app/bench/bench.h"

namespace magister {

// gemm, copy, read, prefill, teacher, decode, judge, layer, with the fields that BenchOptions' file names. Throws Error(kUsage) on another `what`.
nlohmann::ordered_json run_gpu_bench(const BenchOptions& options);

}  // namespace magister
