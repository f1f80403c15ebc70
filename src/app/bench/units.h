// Shared by the benches on CPUs and GPUs: the unit, with or without a cache before it, and the clock.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "app/bench/bench.h"
#include "magister/model/kv_pages.h"
#include "magister/model/transformer.h"

namespace magister {

// options.tokens ids without a pattern, divided into options.sequences: equal, or with options.uneven from one part to
// eight.
PackedBatch probe_unit(const BenchOptions& options, std::int64_t vocab_size);

// A unit whose sequences continue after `past` tokens each that are in a cache, as zeros; no cache if past is 0.
struct CachedUnit {
  PackedBatch batch;
  KvCache cache;
  std::vector<std::vector<std::int32_t>> pages;  // per sequence
  std::vector<BlockTable> slots;

  at::Tensor forward(Transformer& model) {
    return slots.empty() ? model.forward(batch) : model.forward(batch, slots, cache);
  }
};
CachedUnit cached_unit(const Transformer& model, PackedBatch batch, std::int64_t past);

// Number of keys that `rows` rows after `past` tokens see, summed over the rows; window 0: no window.
double visible_keys(std::int64_t rows, std::int64_t past, std::int64_t window);

// Median of at least one value; of an even number of values the upper one.
double median(std::vector<double> values);
// Median of `repeats` runs after a first one that warms up.
double median_seconds(int repeats, const std::function<void()>& body);

}  // namespace magister
