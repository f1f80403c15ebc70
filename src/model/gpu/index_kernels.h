// Kernels of the indexer of sparse latent attention: its keys and queries, the scores of a row's keys, and the choice
// of the best. A score is f32: the sum over the indexer's heads of a weight times max(0, query * key), in an order of
// its own that is the same for all keys. Of equal scores the lower position is chosen, as on CPUs.
// Source: transformers' DeepseekV32Indexer; IndexerConfig has the rule.
// Legend: T packed tokens, R rows that choose, I heads and E head_dim of the indexer, Q rotated numbers of a head, P
// pages of 48 tokens, k chosen keys, A the activations' type (Bf16 or float).
#pragma once

#include "magister/device/device_code.h"
#include "magister/device/numbers_at_once.h"

namespace magister::gpu {

// Where the keys of a row are: with a cache in its pages (page * 48 + slot), without one among the rows of the pass,
// where a text's first keys may be those of another one.
struct KeyPlaces {
  const std::int32_t* page_table = nullptr;  // [., stride], a line for each row; nullptr without a cache
  std::int64_t stride = 0;
  const std::int32_t* sequence_R = nullptr;  // line of the table
  const std::int32_t *past_R = nullptr, *prefix_R = nullptr,
                     *own_R = nullptr;  // key j is at prefix + j, from past on at own + j

  MAGISTER_DEVICE std::int64_t of(std::int64_t row, int key) const {
    if (page_table == nullptr) return (key < past_R[row] ? prefix_R[row] : own_R[row]) + key;
    return static_cast<std::int64_t>(page_table[sequence_R[row] * stride + key / 48]) * 48 + key % 48;
  }
};

// One block per token: the layer norm of the indexer's key and its rotation, into the pages of a cache if there is one,
// and the rotation of its queries in place.
template <typename A>
struct IndexRows {
  static constexpr const char* kName = "index_rows";
  static constexpr int kMaxThreads = 128;
  A* keys_TE;
  A* queries_TIE;
  const float *norm_E, *norm_bias_E;
  const float *cos_PQ2, *sin_PQ2;
  const std::int32_t* rows_T;
  A* pages;  // [P, 1, 48, E], and the slot of every token; nullptr without a cache
  const std::int64_t* slots_T;
  std::int64_t I, E, Q;
  float eps;

  LaunchShape shape(std::int64_t T) const {
    return {.blocks_x = static_cast<unsigned>(T),
            .threads = 128,
            .shared_bytes = (32 + static_cast<std::size_t>(E)) * sizeof(float)};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    auto* const scratch = reinterpret_cast<float*>(t.shared());
    float* const row_E = scratch + 32;
    const std::int64_t token = t.block_x(), half = Q / 2, table = rows_T[token] * half;
    A* const key = keys_TE + token * E;
    float sum = 0, squares = 0;
    for (std::int64_t e = t.thread(); e < E; e += t.num_threads()) sum += row_E[e] = to_float(key[e]);
    const float mean = block_sum(t, sum, scratch) / static_cast<float>(E);
    for (std::int64_t e = t.thread(); e < E; e += t.num_threads()) {
      row_E[e] -= mean;
      squares += row_E[e] * row_E[e];
    }
    const float scale = 1.0f / sqrtf(block_sum(t, squares, scratch) / static_cast<float>(E) + eps);
    for (std::int64_t e = t.thread(); e < E; e += t.num_threads())
      row_E[e] = norm_E[e] * (row_E[e] * scale) + norm_bias_E[e];
    t.sync();
    A* const page = slots_T != nullptr ? pages + slots_T[token] * E : nullptr;
    for (std::int64_t e = t.thread(); e < E; e += t.num_threads()) {
      float value = row_E[e];
      if (e < Q) {
        const std::int64_t pair = e % half;
        const float cos = cos_PQ2[table + pair], sin = sin_PQ2[table + pair];
        value = e < half ? value * cos - row_E[e + half] * sin : value * cos + row_E[e - half] * sin;
      }
      key[e] = stored<A>(value);
      if (page != nullptr) page[e] = key[e];
    }
    if (queries_TIE == nullptr) return;
    for (std::int64_t i = t.thread(); i < I * half; i += t.num_threads()) {
      A* const query = queries_TIE + (token * I + i / half) * E + i % half;
      const float cos = cos_PQ2[table + i % half], sin = sin_PQ2[table + i % half];
      const float low = to_float(query[0]), high = to_float(query[half]);
      query[0] = stored<A>(low * cos - high * sin);
      query[half] = stored<A>(high * cos + low * sin);
    }
  }
};

template <typename A>
struct IndexScoreArguments {
  const A* queries_RIE;
  const float* weights_RI;
  const A* keys;  // rows of E numbers at KeyPlaces
  KeyPlaces places;
  const std::int32_t* visible_R;  // number of keys of a row
  float* scores_RN;
  std::int64_t N, R, I, E;
  std::int64_t k;  // rows with at most this number of keys have no scores
};

// A block computes 64 keys of a row. bf16 goes through the tensor cores, 16 heads at a time: a warp has eight keys.
template <typename A>
struct IndexScores {
  static constexpr const char* kName = "index_scores";
  static constexpr int kMaxThreads = 256;
  static constexpr int kKeys = 64, kHeads = 16;
  IndexScoreArguments<A> a;

  LaunchShape shape() const {
    return {.blocks_x = static_cast<unsigned>(a.R),
            .blocks_y = static_cast<unsigned>((a.N + kKeys - 1) / kKeys),
            .threads = kMaxThreads};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    const std::int64_t row = t.block_x();
    const int first = static_cast<int>(t.block_y()) * kKeys, visible = a.visible_R[row];
    if (first >= visible || visible <= a.k) return;
    const A* const queries = a.queries_RIE + row * a.I * a.E;
    const float* const weights = a.weights_RI + row * a.I;
    float* const out = a.scores_RN + row * a.N;
    if constexpr (sizeof(A) == 2) {
      of_pairs(t, row, first, visible, queries, weights, out);
    } else {
      for (int key = first + t.thread(); key < first + kKeys && key < visible; key += kMaxThreads) {
        const A* const numbers = a.keys + a.places.of(row, key) * a.E;
        float sum = 0;
        for (std::int64_t head = 0; head < a.I; ++head) {
          float product = 0;
          for (std::int64_t e = 0; e < a.E; ++e) product = fmaf(queries[head * a.E + e], numbers[e], product);
          sum += weights[head] * fmaxf(product, 0.0f);
        }
        out[key] = sum;
      }
    }
  }

 private:
  // Eight numbers of a row from e on; zeros outside. 16 bytes at once if rows are multiples of them.
  MAGISTER_DEVICE Words4 eight(const A* row, std::int64_t e, bool there) const {
    Words4 words{};
    if (!there) return words;
    if (a.E % 8 == 0) return e < a.E ? load_16(row + e) : words;
    for (int i = 0; i < 8; ++i) {
      if constexpr (sizeof(A) == 2) {
        if (e + i < a.E) words.word[i / 2] |= static_cast<std::uint32_t>(row[e + i].bits) << (16 * (i % 2));
      }
    }
    return words;
  }

  // Inputs are numbered so that a lane's 16 bytes are its part of two products.
  template <typename Thread>
  MAGISTER_DEVICE void of_pairs(Thread& t, std::int64_t row, int first, int visible, const A* queries,
                                const float* weights, float* out) const {
    const int g = t.lane() / 4, p = t.lane() % 4, mine = first + t.warp() * 8;
    const bool there = mine + g < visible;
    const A* const numbers = a.keys + a.places.of(row, there ? mine + g : 0) * a.E;
    float sums[2] = {};
    for (std::int64_t head = 0; head < a.I; head += kHeads) {
      const bool low = head + g < a.I, high = head + g + 8 < a.I;
      float products[4] = {};
      for (std::int64_t e = 8 * p; e < (a.E + 31) / 32 * 32; e += 32) {
        const Words4 keys = eight(numbers, e, there), x = eight(queries + (head + g) * a.E, e, low),
                     y = eight(queries + (head + g + 8) * a.E, e, high);
        MAGISTER_UNROLL
        for (int half = 0; half < 4; half += 2) {
          const std::uint32_t left[4] = {x.word[half], y.word[half], x.word[half + 1], y.word[half + 1]},
                              right[2] = {keys.word[half], keys.word[half + 1]};
          t.mma_bf16(products, left, right);
        }
      }
      MAGISTER_UNROLL
      for (int i = 0; i < 4; ++i) {
        if (i < 2 ? low : high) sums[i % 2] += weights[head + g + i / 2 * 8] * fmaxf(products[i], 0.0f);
      }
    }
    MAGISTER_UNROLL
    for (int i = 0; i < 2; ++i) {
      for (int mask = 4; mask < kWarp; mask *= 2) sums[i] += t.shuffle_xor(sums[i], mask);
      if (g == 0 && mine + 2 * p + i < visible) out[mine + 2 * p + i] = sums[i];
    }
  }
};

// One block per row: the places of its k best keys, in the order of their positions. Radix selection finds the least
// chosen score, 8 bits at a time; of those that equal it, the lower positions are taken. A score that is not a number
// counts as the least. A row with at most k keys takes all of them.
struct ChooseKeys {
  static constexpr const char* kName = "choose_keys";
  static constexpr int kMaxThreads = 256;
  const float* scores_RN;
  KeyPlaces places;
  const std::int32_t* visible_R;
  std::int32_t* chosen_Rk;  // places
  std::int64_t N, R;
  int k;

  LaunchShape shape() const {
    return {.blocks_x = static_cast<unsigned>(R),
            .threads = kMaxThreads,
            .shared_bytes = sizeof(int) * (kMaxThreads + 2 + kMaxThreads / kWarp)};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    const std::int64_t row = t.block_x();
    const float* const scores = scores_RN + row * N;
    std::int32_t* const out = chosen_Rk + row * k;
    const int n = visible_R[row];
    if (n <= k) {
      for (int key = t.thread(); key < n; key += kMaxThreads) out[key] = static_cast<std::int32_t>(places.of(row, key));
      return;
    }
    auto* const counts = reinterpret_cast<int*>(t.shared());
    std::uint32_t least = 0;
    int left = k;  // of the scores that agree with `least` so far, this number is chosen
    for (int shift = 24; shift >= 0; shift -= 8) {
      counts[t.thread()] = 0;
      t.sync();
      for (int key = t.thread(); key < n; key += kMaxThreads) {
        const std::uint32_t word = ordered(scores[key]);
        if (shift == 24 || word >> (shift + 8) == least >> (shift + 8))
          t.add_shared(counts + (word >> shift & 255u), 1);
      }
      t.sync();
      if (t.thread() == 0) {
        int digit = 255, still = left;
        while (digit > 0 && counts[digit] < still) still -= counts[digit--];
        counts[kMaxThreads] = digit;
        counts[kMaxThreads + 1] = still;
      }
      t.sync();
      least |= static_cast<std::uint32_t>(counts[kMaxThreads]) << shift;
      left = counts[kMaxThreads + 1];
      t.sync();
    }
    auto* const of_warps = reinterpret_cast<std::uint32_t*>(counts + kMaxThreads + 2);
    int greater = 0, equal = 0;  // before this round
    for (int base = 0; base < n; base += kMaxThreads) {
      const int key = base + t.thread();
      const std::uint32_t word = key < n ? ordered(scores[key]) : 0;
      const bool is_greater = key < n && word > least, is_equal = key < n && word == least;
      // Numbers of greater ones in the upper half, of equal ones in the lower half.
      const std::uint32_t own = is_greater ? 0x10000u : is_equal ? 1u : 0u;
      std::uint32_t before = own;
      for (int step = 1; step < kWarp; step *= 2) {
        const std::uint32_t other = t.shuffle(before, t.lane() >= step ? t.lane() - step : t.lane());
        if (t.lane() >= step) before += other;
      }
      if (t.lane() == kWarp - 1) of_warps[t.warp()] = before;
      t.sync();
      std::uint32_t all = 0;
      before -= own;
      for (int warp = 0; warp < kMaxThreads / kWarp; ++warp) {
        if (warp < t.warp()) before += of_warps[warp];
        all += of_warps[warp];
      }
      const int greater_before = greater + static_cast<int>(before >> 16),
                equal_before = equal + static_cast<int>(before & 0xffffu),
                place = greater_before + (equal_before < left ? equal_before : left);
      if (is_greater || (is_equal && equal_before < left)) out[place] = static_cast<std::int32_t>(places.of(row, key));
      greater += static_cast<int>(all >> 16);
      equal += static_cast<int>(all & 0xffffu);
      t.sync();
    }
  }

 private:
  // Greater words for greater numbers; both zeros are equal.
  MAGISTER_DEVICE static std::uint32_t ordered(float score) {
    const float number = score != score ? -INFINITY : score == 0.0f ? 0.0f : score;
    const std::uint32_t bits = float_as_bits(number);
    return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
  }
};

}  // namespace magister::gpu
