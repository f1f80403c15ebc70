// The order of an epoch is a Fisher-Yates shuffle with numbers of splitmix64, keyed by seed and epoch.
#include "magister/train/batch_plan.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "magister/core/error.h"
#include "magister/core/splitmix64.h"

namespace magister {
namespace {

void shuffle(Samples& samples, std::uint64_t key) {
  for (std::uint64_t i = samples.size(); i > 1; --i) {
    const auto wide = static_cast<unsigned __int128>(splitmix64(key + i)) * i;  // the high half is in [0, i)
    std::swap(samples[i - 1], samples[static_cast<std::size_t>(wide >> 64)]);
  }
}

// Tokens of micro-batches whose size is not given: large enough for efficient products, small enough that eight of them
// share a step's work.
constexpr std::uint64_t kMostTokens = 1024, kLeastTokens = 256;

}  // namespace

BatchPlan::BatchPlan(std::vector<std::uint32_t> lengths, const BatchOptions& options)
    : lengths_(std::move(lengths)), options_(options) {
  num_samples_ = static_cast<std::uint64_t>(
      std::count_if(lengths_.begin(), lengths_.end(), [](std::uint32_t length) { return length > 0; }));
  epoch_begins_ = {0};
  if (num_samples_ == 0) return;
  // Steps of single samples are equally many in every epoch; otherwise their number depends on the order.
  const bool counts = !options_.packing && options_.batch_tokens == 0;
  const auto number_of = [&](std::uint64_t epoch) {
    return counts ? (num_samples_ + options_.global_batch - 1) / options_.global_batch
                  : steps_of(sequences_of(epoch)).size() - 1;
  };
  for (std::uint64_t epoch = 0;; ++epoch) {
    const double rest = options_.epochs - static_cast<double>(epoch);
    if (options_.steps > 0 ? epoch_begins_.back() >= options_.steps : rest <= 0) break;
    const std::uint64_t steps = number_of(epoch);
    // A part of an epoch is that part of its steps, rounded up; 1.1 epochs of 10 steps are 11, though 1.1 - 1 is more
    // than 0.1 in binary.
    const bool part = options_.steps == 0 && rest < 1;
    epoch_begins_.push_back(
        epoch_begins_.back() +
        (part ? static_cast<std::uint64_t>(std::ceil(rest * static_cast<double>(steps) * (1 - 1e-9))) : steps));
  }
  num_steps_ = options_.steps > 0 ? options_.steps : epoch_begins_.back();
}

std::uint64_t BatchPlan::epoch_of(std::uint64_t step) const {
  const auto after = std::upper_bound(epoch_begins_.begin(), epoch_begins_.end(), step);
  return static_cast<std::uint64_t>(after - epoch_begins_.begin()) - 1;
}

std::uint64_t BatchPlan::tokens_of(const Samples& samples) const {
  std::uint64_t sum = 0;
  for (const std::uint64_t sample : samples) sum += lengths_[sample];
  return sum;
}

std::vector<Samples> BatchPlan::sequences_of(std::uint64_t epoch) const {
  Samples order;
  for (std::uint64_t i = 0; i < lengths_.size(); ++i) {
    if (lengths_[i] > 0) order.push_back(i);
  }
  if (options_.shuffle) shuffle(order, splitmix64(splitmix64(options_.seed) ^ epoch));
  std::vector<Samples> sequences;
  std::uint64_t filled = 0;
  for (const std::uint64_t sample : order) {
    if (!options_.packing || sequences.empty() || filled + lengths_[sample] > options_.max_length) {
      sequences.emplace_back();
      filled = 0;
    }
    sequences.back().push_back(sample);
    filled += lengths_[sample];
  }
  return sequences;
}

std::vector<std::uint64_t> BatchPlan::steps_of(const std::vector<Samples>& sequences) const {
  std::vector<std::uint64_t> begins = {0};
  std::uint64_t filled = 0;
  for (std::uint64_t i = 0; i < sequences.size(); ++i) {
    const std::uint64_t more = tokens_of(sequences[i]);
    const bool full =
        options_.batch_tokens > 0 ? filled + more > options_.batch_tokens : i - begins.back() == options_.global_batch;
    if (full && i > begins.back()) {
      begins.push_back(i);
      filled = 0;
    }
    filled += more;
  }
  begins.push_back(sequences.size());
  return begins;
}

// If tokens close a micro-batch, it and the first sequence after it have more than that many: an eighth of the step's,
// or kMostTokens.
std::uint64_t most_micro_batches(const BatchOptions& options, const EpochBounds& epoch) {
  // A sequence has at least one token, and one that alone is too long is a step.
  const bool by_tokens = options.batch_tokens > 0;
  const std::uint64_t sequences =
      epoch.texts * std::min(by_tokens ? options.batch_tokens : options.global_batch, epoch.sequences);
  if (options.micro_batch > 0) return (sequences + options.micro_batch - 1) / options.micro_batch;
  const std::uint64_t of_step = by_tokens ? std::max(options.batch_tokens, epoch.longest) : sequences * epoch.longest;
  return std::min(sequences, std::max<std::uint64_t>(18, 2 * std::min(of_step, epoch.tokens) / kMostTokens + 1));
}

std::vector<Samples> BatchPlan::micro_batches(std::uint64_t step) {
  MAGISTER_ASSERT(step < num_steps_);
  const std::uint64_t epoch = epoch_of(step);
  if (epoch_ != epoch) {
    sequences_ = sequences_of(epoch);
    steps_ = steps_of(sequences_);
    epoch_ = epoch;
  }
  const auto in_epoch = static_cast<std::size_t>(step - epoch_begins_[epoch]);
  const std::uint64_t begin = steps_[in_epoch], end = steps_[in_epoch + 1];
  std::uint64_t tokens = 0;
  for (std::uint64_t i = begin; i < end; ++i) tokens += tokens_of(sequences_[i]);
  const std::uint64_t most = std::max(kLeastTokens, std::min(kMostTokens, tokens / 8));
  std::vector<Samples> batches;
  std::uint64_t sequences = 0, filled = 0;
  for (std::uint64_t i = begin; i < end; ++i) {
    const std::uint64_t more = tokens_of(sequences_[i]);
    const bool full = options_.micro_batch > 0 ? sequences == options_.micro_batch : filled + more > most;
    if (batches.empty() || full) {
      batches.emplace_back();
      sequences = filled = 0;
    }
    batches.back().insert(batches.back().end(), sequences_[i].begin(), sequences_[i].end());
    ++sequences;
    filled += more;
  }
  return batches;
}

}  // namespace magister
