// What benches on CPUs and GPUs share: the unit, with or without a cache before it, and the clock.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "app/bench/bench.h"
#include "magister/model/kv_pages.h"
#include "magister/model/transformer.h"

namespace magister {

// options.tokens ids without a pattern, divided into options.sequences: alike, or with options.uneven from one part to eight.
PackedBatch probe_unit(const BenchOptions& options, std::int64_t vocab_size);

// A unit whose sequences go on after `past` tokens each that stand in a cache, as zeros; without a cache when past is 0.
struct CachedUnit {
  PackedBatch batch;
  KvCache cache;
  std::vector<std::vector<std::int32_t>> pages;  // of each sequence
  std::vector<BlockTable> slots;

  at::Tensor forward(Transformer& model) {
    return slots.empty() ? model.forward(batch) : model.forward(batch, slots, cache);
  }
};
CachedUnit cached_unit(const Transformer& model, PackedBatch batch, std::int64_t past);

// Keys that `rows` rows behind `past` tokens see, all together; window 0: none.
double visible_keys(std::int64_t rows, std::int64_t past, std::int64_t window);

// Of at least one value; the upper one of an even number.
double median(std::vector<double> values);
// Of `repeats` runs after a first one that warms up.
double median_seconds(int repeats, const std::function<void()>& body);

}  // namespace magister
