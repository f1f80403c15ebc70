// Samples one row of logits per block, without a sort: the same token as sample_token() for the same row and uniform
// number. Probabilities are integer multiples of 2^-44 of the highest one, so sums do not depend on the order in which
// threads add. Source: engine/sampler.cpp is the definition; radix selection over histograms is a common method.
// Legend: R rows, V vocabulary.
#pragma once

#include "engine/gpu/selection.h"

namespace magister::gpu {

// Passes over a row: maximum, log-sum-exp; for draws also one that weighs all tokens (exp in double) and at most three
// that search for a cut: that of top-k, that of top-p and the draw itself. A row of 128,256 is 513 KB and stays in the
// L2 cache.
struct SampleRows {
  static constexpr const char* kName = "sample_rows";
  static constexpr int kMaxThreads = 512;  // 1,024 would leave 64 registers and spill
  const float* logits_RV;
  std::int64_t stride;      // elements from one row to the next
  const double* uniform_R;  // keyed_uniform(); not read if greedy
  std::int32_t* id_R;       // -1 if a logit of the row is not finite; then logprob is NaN
  float* logprob_R;         // by the model's own distribution
  int V;
  double temperature;   // 0: greedy
  int top_k;            // 0: off
  double top_p, min_p;  // 1 and 0: off

  static constexpr int kBins = SelectionMemory::kBins;
  static constexpr double kCoarse = 0x1p6, kFine = 0x1p39;  // bins per nat; 2^17 and 2^28 are between them

  LaunchShape shape(std::int64_t R) const {
    return {.blocks_x = static_cast<unsigned>(R),
            .threads = V >= 16384 ? 512u : 128u,
            .shared_bytes = sizeof(SelectionMemory)};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    auto& memory = *reinterpret_cast<SelectionMemory*>(t.shared());
    const float* row = logits_RV + t.block_x() * stride;
    const TokenPlace best = highest(t, row, memory);
    std::uint64_t sum = 0, bad = 0;  // terms below 2^-45 of the highest, which become 0, add 4e-9 at most
    each(t, row, [&](int, float z) {
      if (z - z == 0.0f) {
        sum += static_cast<std::uint64_t>(expf(z - best.x) * 0x1p44 + 0.5);
      } else {
        ++bad;  // NaN or infinite
      }
    });
    if (block_sum(t, bad, memory.scratch) != 0) {
      if (t.thread() == 0) {
        id_R[t.block_x()] = -1;
        logprob_R[t.block_x()] = NAN;
      }
      return;
    }
    const double normaliser = best.x + log(static_cast<double>(block_sum(t, sum, memory.scratch)) * 0x1p-44);
    int id = best.id;
    if (temperature > 0) {
      const Scaled scaled{row, 1.0 / temperature, static_cast<float>(best.x / temperature)};
      const int drawn = top_k > 0 || top_p < 1 ? draw_ordered(t, scaled, memory) : draw_any(t, scaled, memory);
      if (drawn >= 0) id = drawn;
    }
    if (t.thread() == 0) {
      id_R[t.block_x()] = id;
      logprob_R[t.block_x()] = static_cast<float>(row[id] - normaliser);
    }
  }

 private:
  // The row after the temperature. It multiplies by 1 / temperature instead of dividing: one float in 2^29 differs.
  struct Scaled {
    const float* row;
    double factor;
    float top;
    MAGISTER_DEVICE float of(float logit) const { return static_cast<float>(logit * factor); }
    // Distance below the highest value, in nats.
    MAGISTER_DEVICE double distance(float logit) const {
      return static_cast<double>(top) - static_cast<double>(of(logit));
    }
  };

  // Zero from 31.2 nats on, and for NaN.
  MAGISTER_DEVICE static std::uint64_t mass_at(double distance) {
    return distance < 32 ? static_cast<std::uint64_t>(exp(-distance) * 0x1p44 + 0.5) : 0;
  }
  // bins: number of bins per nat.
  MAGISTER_DEVICE static std::uint64_t bin_at(double distance, double bins) {
    return static_cast<std::uint64_t>(distance * bins);
  }
  MAGISTER_DEVICE static std::uint64_t part(double share, std::uint64_t total) {
    const auto target = static_cast<std::uint64_t>(share * static_cast<double>(total));
    return target < total ? target : total - 1;
  }

  // Calls f(id, logit) for all tokens: 16 bytes at once if rows are aligned, with four loads in flight.
  template <typename Thread, typename F>
  MAGISTER_DEVICE void each(Thread& t, const float* row, F f) const {
    if (V % 4 != 0 || reinterpret_cast<std::uintptr_t>(row) % 16 != 0) {
      for (int id = t.thread(); id < V; id += t.num_threads()) f(id, row[id]);
      return;
    }
    const int step = 4 * t.num_threads();
    for (int first = 4 * t.thread(); first < V; first += 4 * step) {
      Words4 words[4];
      MAGISTER_UNROLL
      for (int i = 0; i < 4; ++i) {
        words[i] = {};
        if (first + i * step < V) words[i] = load_16(row + first + i * step);
      }
      MAGISTER_UNROLL
      for (int i = 0; i < 16; ++i) {
        const int id = first + i / 4 * step + i % 4;
        if (id < V) f(id, bits_as_float(words[i / 4].word[i % 4]));
      }
    }
  }

  template <typename Thread>
  MAGISTER_DEVICE TokenPlace highest(Thread& t, const float* row, SelectionMemory& memory) const {
    TokenPlace best{-INFINITY, V, 0};
    const auto take = [&](int id, float x) {
      if (is_before(x, id, best.x, best.id)) best.x = x, best.id = id;
    };
    each(t, row, take);
    for (int mask = kWarp / 2; mask > 0; mask /= 2) {
      const float x = t.shuffle_xor(best.x, mask);
      take(t.shuffle_xor(best.id, mask), x);
    }
    if (t.lane() == 0) memory.x[t.warp()] = best.x, memory.id[t.warp()] = best.id;
    t.sync();
    for (int warp = 0; warp < t.num_warps(); ++warp) take(memory.id[warp], memory.x[warp]);
    t.sync();
    if (best.id >= V) best.id = 0;  // all logits are NaN
    return best;
  }

  // No order is needed here: the running sum goes over ids. -1 if no token has a weight.
  template <typename Thread>
  MAGISTER_DEVICE int draw_any(Thread& t, const Scaled& row, SelectionMemory& memory) const {
    const double uniform = uniform_R[t.block_x()];
    const auto weigh = [&](int id) -> std::uint64_t {
      const double distance = row.distance(row.row[id]);
      return is_out(distance) ? 0 : mass_at(distance);
    };
    return find_by_id(t, V, weigh, [&](std::uint64_t total) { return part(uniform, total); }, memory).id;
  }
  MAGISTER_DEVICE bool is_out(double distance) const { return min_p > 0 && exp(-distance) < min_p; }

  // The running sum goes over tokens by descending probability, and every truncation is a cut in that order.
  template <typename Thread>
  MAGISTER_DEVICE int draw_ordered(Thread& t, const Scaled& row, SelectionMemory& memory) const {
    fill_bins(t, row, kCoarse, 0, memory);
    bool filled = true;  // the bins contain the whole row
    std::uint64_t count = 0, total = 0;
    for (int bin = t.thread(); bin < kBins; bin += t.num_threads()) {
      count += static_cast<std::uint64_t>(memory.bin_count[bin]);
      total += memory.bin_mass[bin];
    }
    count = block_sum(t, count, memory.scratch);
    total = block_sum(t, total, memory.scratch);
    if (total == 0) return -1;
    if (top_k > 0 && static_cast<std::uint64_t>(top_k) < count) {
      total = find<true>(t, row, static_cast<std::uint64_t>(top_k - 1), filled, memory).sum;
    }
    if (top_p < 1) {  // until the mass reaches its part, but at least one token
      const auto needed = static_cast<std::uint64_t>(ceil(top_p * static_cast<double>(total)));
      total = find<false>(t, row, needed == 0 ? 0 : (needed < total ? needed : total) - 1, filled, memory).sum;
    }
    if (min_p > 0) {
      std::uint64_t possible = 0;
      each(t, row.row, [&](int, float logit) {
        const double distance = row.distance(logit);
        if (!is_out(distance)) possible += mass_at(distance);
      });
      possible = block_sum(t, possible, memory.scratch);
      total = possible < total ? possible : total;
    }
    return total == 0 ? -1 : find<false>(t, row, part(uniform_R[t.block_x()], total), filled, memory).id;
  }

  // Counts and masses of the tokens in bins [base, base + kBins).
  template <typename Thread>
  MAGISTER_DEVICE void fill_bins(Thread& t, const Scaled& row, double bins, std::uint64_t base,
                                 SelectionMemory& memory) const {
    for (int bin = t.thread(); bin < kBins; bin += t.num_threads()) memory.bin_mass[bin] = 0, memory.bin_count[bin] = 0;
    t.sync();
    each(t, row.row, [&](int, float logit) {
      const double distance = row.distance(logit);
      if (!(distance < 32)) return;
      const std::uint64_t bin = bin_at(distance, bins) - base;  // wraps around below base
      if (bin >= kBins) return;
      const std::uint64_t mass = mass_at(distance);
      if (mass == 0) return;
      t.add_shared(&memory.bin_mass[bin], mass);
      t.add_shared(&memory.bin_count[bin], 1);
    });
    t.sync();
  }

  // Makes the tokens of a bin candidates.
  template <typename Thread>
  MAGISTER_DEVICE void collect(Thread& t, const Scaled& row, double bins, std::uint64_t bin,
                               SelectionMemory& memory) const {
    if (t.thread() == 0) memory.num_candidates = 0;
    t.sync();
    each(t, row.row, [&](int id, float logit) {
      const double distance = row.distance(logit);
      if (!(distance < 32) || bin_at(distance, bins) != bin) return;
      const std::uint64_t mass = mass_at(distance);
      if (mass == 0) return;
      const int place = t.add_shared(&memory.num_candidates, 1);
      memory.x[place] = row.of(logit), memory.id[place] = id, memory.mass[place] = mass;
    });
    t.sync();
  }

  // The first token (most probable first; in a tie the lowest id) at which the number of tokens (kCounts) or the mass
  // up to and including it exceeds `target`; also returns the mass up to it. Such a token must exist. Bins keep the
  // order, however many tokens are in one.
  template <bool kCounts, typename Thread>
  MAGISTER_DEVICE TokenPlace find(Thread& t, const Scaled& row, std::uint64_t target, bool& filled,
                                  SelectionMemory& memory) const {
    std::uint64_t base = 0, before = 0, mass_before = 0;
    for (double bins = kCoarse;; bins *= kBins) {
      if (bins > kCoarse || !filled) fill_bins(t, row, bins, base, memory);
      filled = bins == kCoarse;
      const BinPlace place = locate_bin<kCounts>(t, target, before, mass_before, memory);
      const std::uint64_t bin = base + static_cast<std::uint64_t>(place.bin);
      before = place.before, mass_before = place.mass_before;
      if (place.count <= SelectionMemory::kRoom) {
        collect(t, row, bins, bin, memory);
        return rank_candidates<kCounts>(t, target, before, mass_before, memory);
      }
      if (bins == kFine) {  // nearly equal probabilities: by id
        const auto weigh = [&](int id) -> std::uint64_t {
          const double distance = row.distance(row.row[id]);
          if (!(distance < 32) || bin_at(distance, bins) != bin) return 0;
          return kCounts ? 1 : mass_at(distance);
        };
        TokenPlace found = find_by_id(t, V, weigh, [&](std::uint64_t) { return target - before; }, memory);
        found.sum = mass_before + found.sum * (kCounts ? mass_at(row.distance(row.row[found.id])) : 1);
        return found;
      }
      base = bin * kBins;
    }
  }
};

}  // namespace magister::gpu
