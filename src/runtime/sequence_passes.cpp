// Divides a pass into halves of about equal tokens, down to single sequences.
#include "magister/runtime/sequence_passes.h"

#include <algorithm>
#include <numeric>

#include "magister/core/error.h"
#include "magister/core/log.h"

namespace magister {
namespace {

std::int64_t tokens_of(const std::vector<std::int64_t>& lengths, IndexRange range) {
  return std::accumulate(lengths.begin() + static_cast<std::ptrdiff_t>(range.begin),
                         lengths.begin() + static_cast<std::ptrdiff_t>(range.end), std::int64_t{0});
}

// Returns the first sequence of the second half.
std::uint64_t middle_of(const std::vector<std::int64_t>& lengths, IndexRange range) {
  const std::int64_t half = tokens_of(lengths, range) / 2;
  std::uint64_t middle = range.begin;
  for (std::int64_t tokens = 0; middle + 1 < range.end && (middle == range.begin || tokens < half); ++middle)
    tokens += lengths[middle];
  return middle;
}

}  // namespace

std::uint64_t SequencePasses::tokens_together(const PassShape& unit) const {
  if (model_.queue() == nullptr || model_.group().tp_size() > 1) return unit.tokens;
  const std::uint64_t units = std::min(static_cast<std::uint64_t>(kFullPass) / unit.tokens,
                                       kMostRowBytes / std::max<std::uint64_t>(unit.row_bytes, 1));
  const std::uint64_t tokens = std::max<std::uint64_t>(units, 1) * unit.tokens;
  return memory_.fits_here({static_cast<std::int64_t>(tokens), 0, logit_rows_, 0}) ? tokens : unit.tokens;
}

bool SequencePasses::run(const std::vector<std::int64_t>& lengths, IndexRange range, const Pass& pass) {
  const std::int64_t tokens = tokens_of(lengths, range);
  if (tokens <= most_tokens_ || range.size() == 1) {
    bool goes_on = true;
    const std::string problem = memory_.run({tokens, 0, logit_rows_, 0}, [&] { goes_on = pass(range); });
    if (problem.empty()) return goes_on;
    MAGISTER_CHECK(
        range.size() > 1, ExitCode::kConfig,
        "no memory on the GPU for {} tokens at once: {} (a sequence cannot be divided); lower unit_tokens or "
        "max_length, use larger groups or a quantization",
        tokens, problem);
    most_tokens_ = tokens / 2;
    if (is_root_)
      log_warning("no memory on the GPU for {} tokens at once; passes of at most {} from here on", tokens,
                  most_tokens_);
  }
  const std::uint64_t middle = middle_of(lengths, range);
  return run(lengths, {range.begin, middle}, pass) && run(lengths, {middle, range.end}, pass);
}

}  // namespace magister
