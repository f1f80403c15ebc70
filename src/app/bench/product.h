// bench product: the weights' bytes that a product of few rows reads a second, over what the same thread can read.
#pragma once

#include <nlohmann/json.hpp>

#include "app/bench/bench.h"

namespace magister {

// gbs, read_gbs and their ratio (medians of alternating runs), seconds a product, gflops. One thread.
nlohmann::ordered_json bench_product(const BenchOptions& options);

}  // namespace magister
