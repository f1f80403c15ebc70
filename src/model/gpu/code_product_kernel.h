// Products of int8 and int4 weights with the rows of a decoding pass of many texts. A block widens the codes of 256
// outputs to bf16 in registers, for up to 160 rows at a time; no converted number goes through memory. AddPieces adds
// what blocks have computed of one output, in the order of the inputs. Decision 063 has the arithmetic.
// Source: the PTX ISA's cp.async and mma.m16n8k16. Legend: M rows, N outputs, K inputs.
#pragma once

#include "magister/device/numbers_at_once.h"
#include "model/gpu/code_numbers.h"
#include "model/gpu/code_shares.h"
#include "model/gpu/kept.h"

namespace magister::gpu {

// The warps are 4 groups of 64 outputs times 2 groups of half the rows; both groups of rows widen the same codes. Codes
// are the tensor cores' left side. Lane (g = lane / 4, q = lane % 4) has outputs 8 g to 8 g + 7 of its warp's, output
// 2 m + h in half h of tile m, and of each half step inputs 8 q to 8 q + 7, of codes and of x.
//
// A stage holds 64 inputs: the codes in lines of 128 bytes, 2 or 4 outputs each, then x, a row in each line. Chunks of
// 16 bytes are turned within their line, so that lanes that read at the same time use different banks.
template <int kBits, bool kInPairs>
struct CodeProduct {
  using Numbers = CodeNumbers<kBits, kInPairs>;
  using Scale = typename Numbers::Scale;
  static constexpr const char* kName = "code_product";
  static constexpr int kMaxThreads = 256;
  static constexpr bool kWaits = true;
  static constexpr int kOutputs = CodeShares::kOutputs, kInputs = CodeShares::kInputs;
  static constexpr int kRowStep = 32, kMostRows = 160;  // rows of a block come in steps of two tiles for each warp
  static constexpr int kOutputTiles = 4, kRowTiles = kMostRows / 16;
  static constexpr int kLine = 128, kCodeRow = kInputs * kBits / 8, kCodeBytes = kOutputs * kCodeRow;
  static constexpr int kStageBytes = kCodeBytes + kMostRows * kLine;
  static constexpr int kScaleBytes = 2 * kOutputs * static_cast<int>(sizeof(Scale));  // of a step: of its halves
  // At most 163 KB, with two stages 88: compute capability 8.0 has 163, 8.6 has 99.
  static constexpr int kManyStages = 4, kFewStages = 2;
  static constexpr std::size_t shared_bytes(int stages) {
    return static_cast<std::size_t>(stages * kStageBytes + 2 * kScaleBytes);
  }
  StoredWeight weight;
  const Bf16* x_MK;
  std::int64_t x_stride;  // in numbers
  float* pieces;          // [pieces, M, 256]
  int M, block_rows;      // block_rows: a multiple of kRowStep
  int stages;             // kManyStages or kFewStages
  CodeShares shares;

  LaunchShape shape() const {
    return {.blocks_x = CodeShares::kShares,
            .blocks_y = static_cast<unsigned>((M + block_rows - 1) / block_rows),
            .threads = kMaxThreads,
            .shared_bytes = shared_bytes(stages)};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    const int share = static_cast<int>(t.block_x()), begin = shares.begin(share),
              count = shares.begin(share + 1) - begin;
    Place now = {begin / shares.steps, begin % shares.steps}, ahead = now;
    for (int i = 0; i < stages - 1 && i < count; ++i) fetch_codes(t, ahead, i);
    RawScales raw = load_scales(t, now);
    t.wait_for_earlier();  // only x and the place of pieces belong to earlier kernels
    ahead = now;
    for (int i = 0; i < stages - 1; ++i) {
      if (i < count) fetch_rows(t, ahead, i);
      go_on(ahead);
      t.end_copies();
    }
    const Places places = places_of(t);
    Sums sums = {};
    int stage = 0;
    for (int i = 0; i < count; ++i) {
      put_scales(t, raw, i % 2);
      stages == kManyStages ? t.template wait_for_copies<kManyStages - 2>()
                            : t.template wait_for_copies<kFewStages - 2>();
      t.sync();  // now the data of this step has arrived, and the next copies overwrite nothing that is still read
      if (i + stages - 1 < count) {
        const int fetched = (stage == 0 ? stages : stage) - 1;
        fetch_rows(t, ahead, fetched);
        fetch_codes(t, ahead, fetched);
      }
      t.end_copies();
      const int tile = now.tile;
      go_on(now);
      if (i + 1 < count) raw = load_scales(t, now);
      multiply(t, t.shared() + stage * kStageBytes, scales(t, i % 2), places, sums);
      if (now.tile != tile || i + 1 == count) store_piece(t, tile, share, sums);
      stage = stage + 1 == stages ? 0 : stage + 1;
    }
  }

 private:
  static constexpr int kChunks = kCodeRow / 16, kOutputsAtOnce = kMaxThreads / kChunks, kLineOutputs = kLine / kCodeRow;
  static constexpr int kXChunks = kLine / 16, kRowsAtOnce = kMaxThreads / kXChunks;
  using Sums = float[kOutputTiles][kRowTiles][4];

  MAGISTER_DEVICE static int least(int x, int y) { return x < y ? x : y; }
  // How the chunks of a line are turned, of outputs eight apart and of neighbouring rows.
  MAGISTER_DEVICE static int turn_of(int output) { return kBits == 8 ? output / 8 % 4 * 2 : output / 8 % 8; }
  MAGISTER_DEVICE static int row_turn(int row) { return row % 2 * 4; }

  struct Place {
    int tile, step;
  };
  MAGISTER_DEVICE void go_on(Place& at) const {
    if (++at.step < shares.steps) return;
    at.step = 0;
    ++at.tile;
  }

  // These start the copies of a step; inputs beyond K are zeros. Outputs beyond N and rows beyond M are not copied, and
  // what they multiply is not stored.
  template <typename Thread>
  MAGISTER_DEVICE void fetch_rows(Thread& t, const Place& at, int stage) const {
    const int thread = not_kept(t.thread()), row = thread / kXChunks, chunk = thread % kXChunks,
              rows = least(M - first_row(t), block_rows) - row;
    unsigned char* const to =
        t.shared() + stage * kStageBytes + kCodeBytes + row * kLine + (chunk ^ row_turn(row)) * 16;
    const bool there = at.step * kInputs + chunk * 8 < weight.K;
    const Bf16* from = x_MK + (first_row(t) + row) * x_stride + at.step * kInputs + chunk * 8;
    MAGISTER_UNROLL
    for (int i = 0; i < kMostRows / kRowsAtOnce; ++i) {
      if (i * kRowsAtOnce < rows) t.copy_16(to + i * kRowsAtOnce * kLine, from, there);
      from += kRowsAtOnce * x_stride;
    }
  }
  // Then goes on to the next step.
  template <typename Thread>
  MAGISTER_DEVICE void fetch_codes(Thread& t, Place& at, int stage) const {
    const int thread = not_kept(t.thread()), output = thread / kChunks, chunk = thread % kChunks,
              outputs = weight.N - at.tile * kOutputs - output;
    unsigned char* const to = t.shared() + stage * kStageBytes + output / kLineOutputs * kLine +
                              ((output % kLineOutputs * kChunks + chunk) ^ turn_of(output)) * 16;
    const bool there = at.step * kInputs + chunk * (128 / kBits) < weight.K;
    const unsigned char* from =
        weight.rows + (at.tile * kOutputs + output) * weight.row_bytes + at.step * kCodeRow + chunk * 16;
    MAGISTER_UNROLL
    for (int i = 0; i < kOutputs / kOutputsAtOnce; ++i) {
      if (i * kOutputsAtOnce < outputs) t.copy_16(to + i * kOutputsAtOnce * kCodeRow, from, there);
      from += kOutputsAtOnce * weight.row_bytes;
    }
    go_on(at);
  }

  // Scales of both halves of a step, as stored: a thread has those of one output.
  struct RawScales {
    std::uint32_t scales = 0, offsets = 0;  // the first half's in the lower half
  };
  template <typename Thread>
  MAGISTER_DEVICE RawScales load_scales(Thread& t, const Place& at) const {
    const int n = least(at.tile * kOutputs + t.lane() * 8 + t.warp(), weight.N - 1);
    const int k = weight.lead + at.step * kInputs, of_row = n * weight.G,
              first = of_row + least(k >> weight.group_shift, weight.G - 1),
              second = of_row + least((k + kInputs / 2) >> weight.group_shift, weight.G - 1);
    RawScales raw;
    raw.scales = lower_halves(weight.scales[first], weight.scales[second]);
    if (!kInPairs && weight.offsets != nullptr)
      raw.offsets = lower_halves(weight.offsets[first], weight.offsets[second]);
    return raw;
  }
  // Scale [half][output % 8][output / 8]: eight lanes that read at the same time read neighbours.
  template <typename Thread>
  MAGISTER_DEVICE Scale* scales(Thread& t, int turn) const {
    return reinterpret_cast<Scale*>(t.shared() + stages * kStageBytes + turn * kScaleBytes);
  }
  template <typename Thread>
  MAGISTER_DEVICE void put_scales(Thread& t, const RawScales& raw, int turn) const {
    Scale* const to = scales(t, turn) + t.thread();
    to[0] = Numbers::scale_of(weight, raw.scales & 0xffffu, raw.offsets & 0xffffu);
    to[kOutputs] = Numbers::scale_of(weight, raw.scales >> 16, raw.offsets >> 16);
  }

  template <typename Thread>
  MAGISTER_DEVICE int first_row(Thread& t) const {
    return static_cast<int>(t.block_y()) * block_rows;
  }
  // Where in a stage, and in a step's scales, a lane begins to read.
  struct Places {
    int codes, x, scales;
  };
  template <typename Thread>
  MAGISTER_DEVICE Places places_of(Thread& t) const {
    const int g = t.lane() / 4, q = t.lane() % 4, eight = t.warp() % 4 * 8 + g, row = t.warp() / 4 * block_rows / 2 + g;
    const int within = kBits == 8 ? ((q / 2) ^ turn_of(eight * 8)) * 16 + q % 2 * 8 : turn_of(eight * 8) * 16 + q * 4;
    return {kept(eight * 8 / kLineOutputs * kLine + within), kept(kCodeBytes + row * kLine + (q ^ row_turn(row)) * 16),
            eight};
  }

  // The four numbers of the tensor cores' left side of tile m for both products of a half step.
  template <typename Thread>
  MAGISTER_DEVICE static void widen(Thread&, const unsigned char* stage, const Scale* scales, const Places& places,
                                    int half, int m, std::uint32_t (&first)[4], std::uint32_t (&second)[4]) {
    MAGISTER_UNROLL
    for (int h = 0; h < 2; ++h) {
      const int output = 2 * m + h, chunk = output % kLineOutputs * kChunks + half * (kChunks / 2);
      const auto* const from =
          reinterpret_cast<const std::uint32_t*>(stage + (places.codes ^ chunk * 16) + output / kLineOutputs * kLine);
      std::uint32_t words[Numbers::kWords], pairs[4];
      MAGISTER_UNROLL
      for (int w = 0; w < Numbers::kWords; ++w) words[w] = from[w];
      Numbers::widen(words, scales[half * kOutputs + output * 32 + places.scales], pairs);
      first[h] = pairs[0];
      first[2 + h] = pairs[1];
      second[h] = pairs[2];
      second[2 + h] = pairs[3];
    }
  }

  MAGISTER_DEVICE static void read_two(const unsigned char* x, Words4 (&tiles)[2]) {
    tiles[0] = load_16(x);
    tiles[1] = load_16(x + 8 * kLine);
  }
  template <typename Thread>
  MAGISTER_DEVICE void multiply(Thread& t, const unsigned char* stage, const Scale* scales, const Places& places,
                                Sums& sums) const {
    for (int turn = 0; turn < 2; ++turn) {
      const int half = kept(turn);  // not unrolled: both halves together need more registers than there are
      std::uint32_t left[2][kOutputTiles][4];
      MAGISTER_UNROLL
      for (int m = 0; m < kOutputTiles; ++m) widen(t, stage, scales, places, half, m, left[0][m], left[1][m]);
      const unsigned char* const x = stage + (places.x ^ half * 64);
      Words4 now[2], next[2] = {};
      read_two(x, now);
      MAGISTER_UNROLL
      for (int n = 0; n < kRowTiles; n += 2) {
        if (n * 16 >= block_rows) break;
        if (n + 2 < kRowTiles) read_two(x + (n + 2) * 8 * kLine, next);
        MAGISTER_UNROLL
        for (int i = 0; i < 4 * kOutputTiles; ++i) {
          const int product = i / (2 * kOutputTiles), of_two = i / kOutputTiles % 2, m = i % kOutputTiles;
          const std::uint32_t right[2] = {now[of_two].word[2 * product], now[of_two].word[2 * product + 1]};
          t.mma_bf16(sums[m][n + of_two], left[product][m], right);
        }
        now[0] = next[0];
        now[1] = next[1];
      }
    }
  }

  // Writes the sums as a piece and clears them. Eight neighbouring outputs of a row are stored, or none.
  template <typename Thread>
  MAGISTER_DEVICE void store_piece(Thread& t, int tile, int share, Sums& sums) const {
    const int output = t.warp() % 4 * 64 + t.lane() / 4 * 8, first = first_row(t) + t.warp() / 4 * block_rows / 2;
    float* const to = pieces + static_cast<std::int64_t>(CodeShares::piece(tile, share)) * M * kOutputs + output;
    const bool there = tile * kOutputs + output < weight.N;
    MAGISTER_UNROLL
    for (int n = 0; n < kRowTiles; ++n) {
      MAGISTER_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int row = first + n * 8 + t.lane() % 4 * 2 + i;
        float eight[8];
        MAGISTER_UNROLL
        for (int j = 0; j < 8; ++j) {
          eight[j] = sums[j / 2][n][j % 2 * 2 + i];
          sums[j / 2][n][j % 2 * 2 + i] = 0;
        }
        if (there && n * 16 < block_rows && row < M) store_8(to + static_cast<std::int64_t>(row) * kOutputs, eight);
      }
    }
  }
};

// Adds the pieces of each output in the order of their shares, which is that of the inputs, and finishes the sum.
struct AddPieces {
  static constexpr const char* kName = "add_pieces";
  static constexpr int kMaxThreads = 256;
  const float* pieces;
  CodeShares shares;
  ProductArguments a;  // out_stride and N are multiples of 8

  LaunchShape shape() const {
    const std::int64_t eights = static_cast<std::int64_t>(a.M) * (a.weight.N / 8);
    return {.blocks_x = static_cast<unsigned>((eights + kMaxThreads - 1) / kMaxThreads), .threads = kMaxThreads};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    const std::int64_t eight = t.block_x() * kMaxThreads + t.thread();
    const int m = static_cast<int>(eight / (a.weight.N / 8)), n = static_cast<int>(eight % (a.weight.N / 8)) * 8,
              tile = n / CodeShares::kOutputs;
    if (m >= a.M) return;
    const int last = shares.share_of((tile + 1) * shares.steps - 1);
    float sums[8] = {};
    for (int share = shares.share_of(tile * shares.steps); share <= last; ++share) {
      if (shares.begin(share) == shares.begin(share + 1)) continue;  // it has no steps
      float values[8];
      load_8(pieces + (static_cast<std::int64_t>(CodeShares::piece(tile, share)) * a.M + m) * CodeShares::kOutputs +
                 n % CodeShares::kOutputs,
             values);
      MAGISTER_UNROLL
      for (int i = 0; i < 8; ++i) sums[i] += values[i];
    }
    MAGISTER_UNROLL
    for (int i = 0; i < 8; ++i) sums[i] = finished_sum(a, n + i, sums[i]);
    const std::int64_t at = m * a.out_stride + n;
    a.float_out ? store_8(static_cast<float*>(a.out_MN) + at, sums) : store_8(static_cast<Bf16*>(a.out_MN) + at, sums);
  }
};

}  // namespace magister::gpu
