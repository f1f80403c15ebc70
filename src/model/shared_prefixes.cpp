// Finds the best runs of neighbours by dynamic programming over the beginning of the last run.
#include "magister/model/shared_prefixes.h"

#include <algorithm>
#include <limits>

#include "magister/core/error.h"
#include "magister/model/kv_pages.h"
#include "magister/model/transformer.h"

namespace magister {
namespace {

static_assert(kLeastShared == KvPages::kSlots);
// Largest number of sequences in a run. It bounds the search per sequence; a longer run would save at most 0.4 % more
// rows.
constexpr std::size_t kMostNeighbours = 256;

std::int64_t common_tokens(const std::vector<TokenId>& a, const std::vector<TokenId>& b) {
  const std::size_t most = std::min(a.size(), b.size());
  const auto end = a.begin() + static_cast<std::ptrdiff_t>(most);
  return std::mismatch(a.begin(), end, b.begin()).first - a.begin();
}

// A run of neighbouring sequences, given by its first one, and the number of tokens that all of them begin with.
struct Run {
  std::size_t begin = 0;
  std::int64_t shared = 0;
};

// Entry e, of [S + 1], is the last run of the best division of the first e sequences, which saves the most rows.
std::vector<Run> best_runs(const std::vector<std::vector<TokenId>>& sequences,
                           const std::vector<std::int64_t>& wanted_S) {
  const std::size_t count = sequences.size();
  std::vector<std::int64_t> with_last(count, 0), saved(count + 1, 0);
  for (std::size_t s = 1; s < count; ++s)
    with_last[s] = std::min(common_tokens(sequences[s - 1], sequences[s]), wanted_S[s]);
  std::vector<Run> runs(count + 1);
  for (std::size_t end = 1; end <= count; ++end) {
    runs[end] = {end - 1, 0};
    saved[end] = saved[end - 1];
    std::int64_t shared = std::numeric_limits<std::int64_t>::max();
    for (std::size_t begin = end - 1; begin > 0 && end - begin < kMostNeighbours; --begin) {
      shared = std::min(shared, with_last[begin]);
      if (shared < kLeastShared) break;
      const std::int64_t total = saved[begin - 1] + static_cast<std::int64_t>(end - begin) * shared;
      if (total <= saved[end]) continue;
      saved[end] = total;
      runs[end] = {begin - 1, shared};
    }
  }
  return runs;
}

}  // namespace

PackedBatch pack_sharing(const std::vector<std::vector<TokenId>>& sequences,
                         const std::vector<std::int64_t>& wanted_S) {
  MAGISTER_ASSERT(wanted_S.size() == sequences.size());
  const std::vector<Run> runs = best_runs(sequences, wanted_S);
  std::vector<std::int64_t> past_S(sequences.size(), 0), prefix_of_S(sequences.size(), 0);
  for (std::size_t end = sequences.size(); end > 0; end = runs[end].begin) {
    for (std::size_t s = runs[end].begin; s < end; ++s) {
      past_S[s] = s == runs[end].begin ? 0 : runs[end].shared;
      prefix_of_S[s] = static_cast<std::int64_t>(runs[end].begin);
    }
  }
  if (std::all_of(past_S.begin(), past_S.end(), [](std::int64_t past) { return past == 0; }))
    return pack_sequences(sequences);
  std::vector<std::vector<TokenId>> rows;
  for (std::size_t s = 0; s < sequences.size(); ++s)
    rows.emplace_back(sequences[s].begin() + static_cast<std::ptrdiff_t>(past_S[s]), sequences[s].end());
  PackedBatch batch = pack_sequences(rows, std::move(past_S));
  batch.prefix_of_S = std::move(prefix_of_S);
  return batch;
}

}  // namespace magister
