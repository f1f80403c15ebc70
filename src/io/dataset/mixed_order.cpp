// Draws one by one. The generator's state is kept every 65,536 records, so that a range is reached without all earlier
// draws.
#include "io/dataset/mixed_order.h"

#include <algorithm>
#include <array>

#include "magister/core/error.h"

namespace magister {
namespace {

constexpr std::uint64_t kStride = 1 << 16;

// numpy's SeedSequence(seed).generate_state(4, uint64): mixes four words of entropy, then generates from them.
std::array<std::uint64_t, 4> seed_words(std::uint64_t seed) {
  std::uint32_t factor = 0x43b0d7e5;
  const auto scramble = [&factor](std::uint32_t value, std::uint32_t multiplier) {
    value ^= factor;
    factor *= multiplier;
    value *= factor;
    return value ^ value >> 16;
  };
  std::array<std::uint32_t, 4> pool = {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32), 0, 0};
  for (std::uint32_t& word : pool) word = scramble(word, 0x931e8875);
  for (std::size_t from = 0; from < pool.size(); ++from) {
    for (std::size_t to = 0; to < pool.size(); ++to) {
      if (from == to) continue;
      const std::uint32_t mixed = 0xca01f9ddu * pool[to] - 0x4973f715u * scramble(pool[from], 0x931e8875);
      pool[to] = mixed ^ mixed >> 16;
    }
  }
  factor = 0x8b51f9dd;
  std::array<std::uint64_t, 4> words{};
  for (std::size_t i = 0; i < 8; ++i) {
    words[i / 2] |= static_cast<std::uint64_t>(scramble(pool[i % 4], 0x58f38ded)) << (32 * (i % 2));
  }
  return words;
}

}  // namespace

NumpyUniform::NumpyUniform(std::uint64_t seed) {
  const std::array<std::uint64_t, 4> words = seed_words(seed);
  const auto wide = [](std::uint64_t high, std::uint64_t low) {
    return static_cast<unsigned __int128>(high) << 64 | low;
  };
  increment_ = wide(words[2], words[3]) << 1 | 1;
  step();
  state_ += wide(words[0], words[1]);
  step();
}

void NumpyUniform::step() {
  constexpr auto kMultiplier = static_cast<unsigned __int128>(2549297995355413924ull) << 64 | 4865540595714422341ull;
  state_ = state_ * kMultiplier + increment_;
}

double NumpyUniform::next() {
  step();
  const auto high = static_cast<std::uint64_t>(state_ >> 64), mixed = high ^ static_cast<std::uint64_t>(state_);
  const auto turn = static_cast<unsigned>(high >> 58);
  return static_cast<double>((mixed >> turn | mixed << (-turn & 63)) >> 11) * 0x1p-53;
}

MixedOrder::MixedOrder(const DatasetMix& mix, std::vector<std::uint64_t> lengths, const std::function<void()>& poll)
    : stop_(mix.stop), lengths_(std::move(lengths)) {
  MAGISTER_ASSERT(!lengths_.empty() && lengths_.size() == mix.sources.size());
  double sum = 0;
  for (const DatasetMix::Source& source : mix.sources) sum += source.weight;
  double up_to = 0;
  for (const DatasetMix::Source& source : mix.sources) up_to_.push_back(up_to += source.weight / sum);
  for (double& each : up_to_) each /= up_to;
  Place place{NumpyUniform(mix.seed), std::vector<std::uint64_t>(lengths_.size(), 0)};
  std::uint64_t draws = 0, asked = 0;
  constexpr std::uint64_t kMost = 1ull << 32;
  for (const std::uint64_t length : lengths_)
    most_draws_ = std::min(most_draws_ + 100 * std::min(length, kMost), kMost);
  for (; !at_end(place); ++num_records_) {
    if (num_records_ % kStride == 0) places_.push_back(place);
    draw(place, draws);
    if (draws - asked < kStride) continue;
    asked = draws;
    poll();
    MAGISTER_CHECK(
        draws <= most_draws_, ExitCode::kConfig,
        "dataset.sources: {} draws were made and the data set is not at its end (a weight is too small compared with "
        "the others); set stopping_strategy to first_exhausted, or give weights nearer to each other",
        draws);
  }
}

bool MixedOrder::at_end(const Place& place) const {
  std::size_t done = 0;
  for (std::size_t i = 0; i < lengths_.size(); ++i) done += place.taken[i] >= lengths_[i] ? 1 : 0;
  return stop_ == DatasetMix::Stop::kFirstExhausted ? done > 0 : done == lengths_.size();
}

MixedOrder::Pick MixedOrder::draw(Place& place, std::uint64_t& draws) const {
  while (true) {
    ++draws;
    const auto found = std::upper_bound(up_to_.begin(), up_to_.end(), place.uniform.next());
    const auto source = static_cast<std::size_t>(found - up_to_.begin());
    std::uint64_t& taken = place.taken[source];
    if (stop_ == DatasetMix::Stop::kAllExhaustedOnce && taken >= lengths_[source]) {
      if (draws > most_draws_) return {};  // the constructor has refused this
      continue;
    }
    return {source, taken++ % lengths_[source]};
  }
}

MixedOrder::Place MixedOrder::place_before(std::uint64_t at) const {
  const std::uint64_t nearest = std::min<std::uint64_t>(at / kStride, places_.size() - 1);
  Place place = places_[nearest];
  std::uint64_t draws = 0;
  for (std::uint64_t i = nearest * kStride; i < at; ++i) draw(place, draws);
  return place;
}

void MixedOrder::for_each(IndexRange range, const std::function<bool(Pick)>& visit) const {
  if (range.begin >= range.end) return;
  Place place = place_before(range.begin);
  std::uint64_t draws = 0;
  for (std::uint64_t i = range.begin; i < range.end; ++i) {
    if (!visit(draw(place, draws))) return;
  }
}

std::vector<std::uint64_t> MixedOrder::taken_before(std::uint64_t at) const { return place_before(at).taken; }

}  // namespace magister
