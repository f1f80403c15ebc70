// The optimizer on a GPU: AdamW of weights on the device, and the sums of squares of a gradient's blocks, both with the
// bits of the host's loops (optimizer.cpp). f32; sums f64.
#pragma once

#include "magister/device/device_code.h"
#include "train/adamw_number.h"

namespace magister::gpu {

// A block of threads per tile of optimizer_parts.h (with the same fields).
struct Adamw {
  static constexpr const char* kName = "adamw";
  static constexpr int kMaxThreads = 256;
  struct Tile {
    std::int64_t flat, part;
    std::int32_t count, decays;
  };
  AdamwRates rates;
  const Tile* tiles;
  std::int64_t num_tiles;
  const float* gradient;  // its first number is number `first` of the part
  std::int64_t first;
  float *weights, *mean, *square;  // flat weights, and the part's moments; 16-byte aligned, as tiles are

  LaunchShape shape() const { return {.blocks_x = static_cast<unsigned>(num_tiles), .threads = kMaxThreads}; }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    const Tile tile = tiles[t.block_x()];
    const float keep = tile.decays != 0 ? rates.keep : 1.0f;
    const float* const g = gradient + (tile.part - first);
    float *const w = weights + tile.flat, *const m = mean + tile.part, *const s = square + tile.part;
    const int fours = tile.count / 4;
    for (int i = t.thread(); i < fours; i += t.num_threads()) {
      const Words4 of_g = load_16_once(g + 4 * i);
      Words4 of_w = load_16(w + 4 * i), of_m = load_16(m + 4 * i), of_s = load_16(s + 4 * i);
      MAGISTER_UNROLL
      for (int j = 0; j < 4; ++j) {
        float weight = bits_as_float(of_w.word[j]), average = bits_as_float(of_m.word[j]),
              of_squares = bits_as_float(of_s.word[j]);
        adamw_number(rates, keep, bits_as_float(of_g.word[j]), weight, average, of_squares);
        of_w.word[j] = float_as_bits(weight);
        of_m.word[j] = float_as_bits(average);
        of_s.word[j] = float_as_bits(of_squares);
      }
      store_16(w + 4 * i, of_w);
      store_16(m + 4 * i, of_m);
      store_16(s + 4 * i, of_s);
    }
    for (int i = 4 * fours + t.thread(); i < tile.count; i += t.num_threads())
      adamw_number(rates, keep, g[i], w[i], m[i], s[i]);
  }
};

// The sum of the squares of every block of 4,096 numbers, by eight threads: thread l adds the numbers l, l + 8, ... in
// their order, and then their sums are added from the first to the last, as in optimizer.cpp. A product of two f32 is
// exact in f64.
struct BlockSquares {
  static constexpr const char* kName = "block_squares";
  static constexpr int kMaxThreads = 256;
  static constexpr int kLanes = 8, kBlock = 4096;
  static constexpr int kAtOnce = 16;  // loads under way per thread
  const float* numbers;
  std::int64_t size;
  double* sums;  // [blocks]

  std::int64_t num_blocks() const { return (size + kBlock - 1) / kBlock; }
  LaunchShape shape() const {
    constexpr int kBlocks = kMaxThreads / kLanes;
    return {.blocks_x = static_cast<unsigned>((num_blocks() + kBlocks - 1) / kBlocks), .threads = kMaxThreads};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    const std::int64_t block = (t.block_x() * kMaxThreads + t.thread()) / kLanes, begin = block * kBlock;
    const int lane = t.thread() % kLanes;
    const int count = begin >= size ? 0 : size - begin < kBlock ? static_cast<int>(size - begin) : kBlock;
    const float* const x = numbers + begin;
    double sum = 0;
    int i = lane;
    for (; i + kLanes * (kAtOnce - 1) < count; i += kLanes * kAtOnce) {
      float some[kAtOnce];
      MAGISTER_UNROLL
      for (int k = 0; k < kAtOnce; ++k) some[k] = x[i + k * kLanes];
      MAGISTER_UNROLL
      for (int k = 0; k < kAtOnce; ++k) sum += static_cast<double>(some[k]) * static_cast<double>(some[k]);
    }
    for (; i < count; i += kLanes) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    const int first = t.lane() - lane;
    double whole = 0;
    for (int l = 0; l < kLanes; ++l) whole += t.shuffle(sum, first + l);
    if (lane == 0 && count > 0) sums[block] = whole;
  }
};

}  // namespace magister::gpu
