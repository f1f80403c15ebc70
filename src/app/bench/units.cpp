// Units of benches: ids without repetition, with the requested lengths.
#include "app/bench/units.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "magister/core/error.h"

namespace magister {
namespace {

// The length of each sequence in parts of the tokens: all 1, or 1, 6, 3, 8, 5, 2, 7, 4, 1, 6 ...
std::vector<std::int64_t> parts_of(const BenchOptions& options) {
  std::vector<std::int64_t> parts;
  parts.reserve(static_cast<std::size_t>(options.sequences));
  for (std::int64_t s = 0; s < options.sequences; ++s) parts.push_back(options.uneven ? 1 + s * 5 % 8 : 1);
  return parts;
}

}  // namespace

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

double median_seconds(int repeats, const std::function<void()>& body) {
  body();  // warms caches and pages
  std::vector<double> seconds;
  for (int i = 0; i < repeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    body();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return median(std::move(seconds));
}

PackedBatch probe_unit(const BenchOptions& options, std::int64_t vocab_size) {
  MAGISTER_CHECK(
      !options.uneven || options.tokens >= 8 * options.sequences, ExitCode::kUsage,
      "--lengths uneven with {} tokens in {} sequences (the shortest would be empty); give at least {} tokens",
      options.tokens, options.sequences, 8 * options.sequences);
  const std::vector<std::int64_t> parts = parts_of(options);
  const std::int64_t all = std::max<std::int64_t>(1, std::accumulate(parts.begin(), parts.end(), std::int64_t{0}));
  std::int64_t before = 0;
  std::vector<std::vector<TokenId>> sequences;
  for (const std::int64_t part : parts) {
    // A sequence begins at the first token at or after its share.
    const std::int64_t begin = (before * options.tokens + all - 1) / all;
    before += part;
    const std::int64_t end = (before * options.tokens + all - 1) / all;
    sequences.emplace_back();
    for (std::int64_t i = begin; i < end; ++i) {
      sequences.back().push_back(static_cast<TokenId>((static_cast<std::uint64_t>(i) * 2654435761u + 97u) %
                                                      static_cast<std::uint64_t>(vocab_size)));
    }
  }
  return pack_sequences(sequences);
}

CachedUnit cached_unit(const Transformer& model, PackedBatch batch, std::int64_t past) {
  CachedUnit unit;
  unit.batch = std::move(batch);
  if (past == 0) return unit;
  const std::int64_t S = unit.batch.num_sequences();
  std::int32_t num_pages = 0;
  for (std::int64_t s = 0; s < S; ++s) {
    const std::int64_t tokens = past + unit.batch.cu_seqlens[s + 1] - unit.batch.cu_seqlens[s];
    unit.pages.emplace_back();
    for (std::int64_t j = 0; j < tokens; j += KvPages::kSlots) unit.pages.back().push_back(num_pages++);
  }
  unit.batch.past_S.assign(static_cast<std::size_t>(S), past);
  auto* positions = unit.batch.positions_T.data_ptr<std::int32_t>();
  for (std::int64_t t = 0; t < unit.batch.num_tokens(); ++t) positions[t] += static_cast<std::int32_t>(past);
  for (const std::vector<std::int32_t>& pages : unit.pages)
    unit.slots.push_back({pages.data(), 0, static_cast<std::int64_t>(unit.slots.size())});
  unit.cache = model.make_cache(num_pages, std::ssize(unit.slots));
  for (const DeltaStates& states : unit.cache.states) {
    if (!states.heads_PHS.defined()) continue;
    states.heads_PHS.zero_();
    states.inputs_PWC.zero_();
  }
  return unit;
}

double visible_keys(std::int64_t rows, std::int64_t past, std::int64_t window) {
  double visible = 0;
  for (std::int64_t i = 1; i <= rows; ++i)
    visible += static_cast<double>(window > 0 ? std::min(past + i, window) : past + i);
  return visible;
}

}  // namespace magister
