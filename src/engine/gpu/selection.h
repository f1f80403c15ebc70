// Finds the token at which a running sum exceeds a target, with the threads of a block: over ids, over bins, over
// candidates. Sums are integers (tokens, or probabilities in fixed point), so the order of additions does not matter.
// Source: block-wide prefix sums, as in every GPU textbook.
// Legend: V vocabulary.
#pragma once

#include "magister/device/device_code.h"

namespace magister::gpu {

// Shared memory for selecting from a row, 41 KB.
struct SelectionMemory {
  static constexpr int kBins = 2048;
  static constexpr int kRoom = 1024;  // candidates
  std::uint64_t bin_mass[kBins];
  std::uint64_t mass[kRoom];
  std::uint64_t scratch[2 * kWarp + 4];
  int bin_count[kBins];
  float x[kRoom];
  int id[kRoom];
  int num_candidates, found;
};

// A token, and the sum up to and including it in the current order.
struct TokenPlace {
  float x;
  int id;
  std::uint64_t sum;
};

// The order of probabilities; in a tie the lower id comes first.
MAGISTER_DEVICE bool is_before(float x, int id, float other, int other_id) {
  return x > other || (x == other && id < other_id);
}

// The sum over the lanes of a warp up to and including this one.
template <typename Thread>
MAGISTER_DEVICE std::uint64_t running_sum(Thread& t, std::uint64_t value) {
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const int lane = t.lane() - distance;
    const std::uint64_t other = t.shuffle(value, lane < 0 ? 0 : lane);
    if (lane >= 0) value += other;
  }
  return value;
}

// In ascending order of ids: the first of V tokens at which the running sum of weigh(id) exceeds target(total); id -1
// if the total is 0. At every level each warp sums a range of ids, and the search continues in the range in which the
// target is exceeded: V = 128,256 with 16 warps gives ranges of 8,032 ids, then 512, then 32.
template <typename Thread, typename Weigh, typename Target>
MAGISTER_DEVICE TokenPlace find_by_id(Thread& t, int V, Weigh weigh, Target target_of, SelectionMemory& memory) {
  int low = 0, high = V;
  std::uint64_t before = 0, target = 0;
  do {
    const int stretch = ((high - low + t.num_warps() - 1) / t.num_warps() + kWarp - 1) / kWarp * kWarp;
    const int begin = low + t.warp() * stretch, end = begin + stretch < high ? begin + stretch : high;
    std::uint64_t sum = 0;
    for (int id = begin + t.lane(); id < end; id += kWarp) sum += weigh(id);
    sum = warp_sum(t, sum);
    if (t.lane() == 0) memory.scratch[t.warp()] = sum;
    t.sync();
    if (low == 0 && high == V) {
      std::uint64_t total = 0;
      for (int warp = 0; warp < t.num_warps(); ++warp) total += memory.scratch[warp];
      if (total > 0) target = target_of(total);
      if (total == 0) low = high;
    }
    int warp = 0;
    while (warp + 1 < t.num_warps() && before + memory.scratch[warp] <= target) before += memory.scratch[warp++];
    t.sync();
    if (low == high) return {0.0f, -1, 0};
    low += warp * stretch;
    if (low + stretch < high) high = low + stretch;
  } while (high - low > kWarp);
  const std::uint64_t sum = before + running_sum(t, low + t.lane() < high ? weigh(low + t.lane()) : 0);
  int lane = sum > target ? t.lane() : kWarp - 1;
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    const int other = t.shuffle_xor(lane, mask);
    if (other < lane) lane = other;
  }
  return {0.0f, low + lane, t.shuffle(sum, lane)};
}

// A bin, the number of its tokens, and the sums before it.
struct BinPlace {
  int bin, count;
  std::uint64_t before, mass_before;
};

// The bin in which the running sum of counts (kCounts) or of mass exceeds `target`; `before` and `mass_before` are the
// sums before all bins. When this returns, every thread has read the bins, so they may be refilled.
template <bool kCounts, typename Thread>
MAGISTER_DEVICE BinPlace locate_bin(Thread& t, std::uint64_t target, std::uint64_t before, std::uint64_t mass_before,
                                    SelectionMemory& memory) {
  const int each = SelectionMemory::kBins / t.num_threads(), first = t.thread() * each;
  const auto size = [&](int bin) {
    return kCounts ? static_cast<std::uint64_t>(memory.bin_count[bin]) : memory.bin_mass[bin];
  };
  std::uint64_t own = 0, own_mass = 0;
  for (int bin = first; bin < first + each; ++bin) own += size(bin), own_mass += memory.bin_mass[bin];
  std::uint64_t sum = running_sum(t, own), mass = running_sum(t, own_mass);
  if (t.lane() == kWarp - 1) memory.scratch[t.warp()] = sum, memory.scratch[kWarp + t.warp()] = mass;
  t.sync();
  sum += before - own;  // without this thread's bins
  mass += mass_before - own_mass;
  for (int warp = 0; warp < t.warp(); ++warp) sum += memory.scratch[warp], mass += memory.scratch[kWarp + warp];
  t.sync();
  if (sum <= target && target < sum + own) {
    int bin = first;
    for (; sum + size(bin) <= target; ++bin) sum += size(bin), mass += memory.bin_mass[bin];
    memory.scratch[0] = static_cast<std::uint64_t>(bin), memory.scratch[1] = sum, memory.scratch[2] = mass;
  }
  t.sync();
  const int bin = static_cast<int>(memory.scratch[0]);
  const BinPlace place{bin, memory.bin_count[bin], memory.scratch[1], memory.scratch[2]};
  t.sync();
  return place;
}

// The same over the collected candidates. Each finds its own place: n^2 steps per block, at most 1,024 in an inner
// loop.
template <bool kCounts, typename Thread>
MAGISTER_DEVICE TokenPlace rank_candidates(Thread& t, std::uint64_t target, std::uint64_t before,
                                           std::uint64_t mass_before, SelectionMemory& memory) {
  const int n = memory.num_candidates;
  for (int i = t.thread(); i < n; i += t.num_threads()) {
    const float x = memory.x[i];
    const int id = memory.id[i];
    std::uint64_t sum = before, mass = mass_before;
    for (int j = 0; j < n; ++j) {
      if (!is_before(memory.x[j], memory.id[j], x, id)) continue;
      sum += kCounts ? 1 : memory.mass[j];
      mass += memory.mass[j];
    }
    const std::uint64_t own = kCounts ? 1 : memory.mass[i];
    if (sum <= target && target < sum + own) memory.found = i, memory.scratch[0] = mass + memory.mass[i];
  }
  t.sync();
  const TokenPlace place{memory.x[memory.found], memory.id[memory.found], memory.scratch[0]};
  t.sync();
  return place;
}

}  // namespace magister::gpu
