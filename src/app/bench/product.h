// bench product: the bytes of weights per second that a product of few rows reads, against what the same thread can
// read.
#pragma once

#include <nlohmann/json.hpp>

#include "app/bench/bench.h"

namespace magister {

// Returns gbs, read_gbs and their ratio (medians of alternating runs), seconds per product, gflops. One thread.
nlohmann::ordered_json bench_product(const BenchOptions& options);

}  // namespace magister
