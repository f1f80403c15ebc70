// The products of all experts of a layer with many rows each (passes of prompts) in one launch: ExpertProduct for bf16
// weights, or of some experts whose codes have been converted to bf16, and FloatExpertProduct for f32. A row's sum is
// one chain over K in the order of the inputs, so its bits depend neither on the other rows of its expert nor on their
// number. Decision 061 has the arithmetic.
// Source: the PTX ISA's cp.async and mma.m16n8k16. Legend: as in expert_blocks.h.
#pragma once

#include "magister/device/numbers_at_once.h"
#include "model/gpu/expert_blocks.h"
#include "model/gpu/kept.h"
#include "model/gpu/load_matrices.h"

namespace magister::gpu {

// The warps are 2 groups of 64 rows times 4 groups of 64 outputs, and a warp without rows or outputs only copies. Rows
// are the tensor cores' left side. A step is two products of 16 inputs; while one is computed, the factors of the next
// one are read, across the barrier between two steps, too. Outputs are numbered so that a lane has sixteen neighbours:
// column c of tile j is output 16 (c / 2) + 2 j + c % 2 of the warp's.
struct ExpertProduct : ExpertBlocks<Bf16, 256, 16> {
  static constexpr const char* kName = "expert_product";
  static constexpr int kRowTiles = 4, kOutputTiles = 8, kOfWarp = 64;

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    const ExpertRows item = items_I[t.block_y()];
    if (!has_work(item)) return;
    Copies copies = copies_of(t, item, weights_of(item));
    for (int step = 0; step < kStages - 1; ++step) fetch(t, copies, step);
    const int first_row = t.warp() / 4 * kOfWarp, first_output = t.warp() % 4 * kOfWarp,
              output = static_cast<int>(t.block_x()) * kOutputs + first_output;
    const bool computes = first_row < item.rows && output < M;
    const Places places = places_of(t, first_row, first_output);
    const unsigned char* const shared = kept(t.shared());
    Sums sums = {};
    Factors first, second;
    t.template wait_for_copies<kStages - 2>();
    t.sync();
    if (computes) read(t, shared, places, 0, first);
    int at = 0;
    for (int step = 0; step < steps(); ++step) {
      fetch(t, copies, step + kStages - 1);  // overwrites the stage before this one, which all have read
      if (computes) {
        read(t, shared + at, places, 1, second);
        multiply(t, first, sums);
      }
      at = at == (kStages - 1) * kStageBytes ? 0 : at + kStageBytes;
      t.template wait_for_copies<kStages - 2>();
      t.sync();  // now the data of the next step has arrived
      if (computes) {
        read(t, shared + at, places, 0, first);  // behind the last step nothing uses it
        multiply(t, second, sums);
      }
    }
    if (computes) store(t, item, first_row, output, sums);
  }

 private:
  using Sums = float[kRowTiles][kOutputTiles][4];
  struct Factors {  // of a product of 16 inputs
    std::uint32_t left[kRowTiles][4], right[kOutputTiles][2];
  };
  // Where in a stage a lane begins to read.
  struct Places {
    int x, weights;
  };

  // The four matrices of a read are 8 rows of x and the 8 behind them, each with two neighbouring chunks; or the
  // weights of two tiles of outputs.
  template <typename Thread>
  MAGISTER_DEVICE static Places places_of(Thread& t, int first_row, int first_output) {
    const int matrix = t.lane() / 8, r = t.lane() % 8, row = first_row + matrix % 2 * 8 + r,
              output = first_output + r / 2 * 2 * kOutputTiles + r % 2 + matrix / 2 * 2;
    return {kept(row * kRowBytes + (matrix / 2 ^ r / 2) * 16),
            kept(kXBytes + output * kRowBytes + (matrix % 2 ^ r / 2) * 16)};
  }

  // half: of the step's inputs; two chunks away.
  template <typename Thread>
  MAGISTER_DEVICE static void read(Thread& t, const unsigned char* from, const Places& places, int half,
                                   Factors& factors) {
    const unsigned char *const x = from + (places.x ^ half * 32), *const weights = from + (places.weights ^ half * 32);
    MAGISTER_UNROLL
    for (int m = 0; m < kRowTiles; ++m) {
      const Words4 words = load_matrices(t, x + m * 16 * kRowBytes);
      MAGISTER_UNROLL
      for (int i = 0; i < 4; ++i) factors.left[m][i] = words.word[i];
    }
    MAGISTER_UNROLL
    for (int n = 0; n < kOutputTiles; n += 2) {
      const Words4 words = load_matrices(t, weights + 2 * n * kRowBytes);
      MAGISTER_UNROLL
      for (int i = 0; i < 4; ++i) factors.right[n + i / 2][i % 2] = words.word[i];
    }
  }

  template <typename Thread>
  MAGISTER_DEVICE static void multiply(Thread& t, const Factors& factors, Sums& sums) {
    MAGISTER_UNROLL
    for (int n = 0; n < kOutputTiles; ++n) {
      MAGISTER_UNROLL
      for (int m = 0; m < kRowTiles; ++m) t.mma_bf16(sums[m][n], factors.left[m], factors.right[n]);
    }
  }

  // Output columns [first, first + 64) of the warp's rows. Eight neighbours at a time are stored, or none.
  template <typename Thread>
  MAGISTER_DEVICE void store(Thread& t, const ExpertRows& item, int first_row, int first, const Sums& sums) const {
    const ExpertPlace& place = places_X[item.expert];
    const int g = t.lane() / 4, m_of_lane = first + t.lane() % 4 * 2 * kOutputTiles;
    MAGISTER_UNROLL
    for (int eight = 0; eight < 2; ++eight) {
      const int output = m_of_lane + eight * 8;
      if (output >= M) continue;
      float scale[8], bias[8];
      MAGISTER_UNROLL
      for (int i = 0; i < 8; ++i) {
        scale[i] = place.output_scales_N != nullptr ? place.output_scales_N[output + i] : 1.0f;
        bias[i] = place.bias_N != nullptr ? place.bias_N[output + i] : 0.0f;
      }
      MAGISTER_UNROLL
      for (int i = 0; i < 2 * kRowTiles; ++i) {
        const int row = first_row + i * 8 + g;
        if (row >= item.rows) continue;
        float values[8];
        MAGISTER_UNROLL
        for (int j = 0; j < 8; ++j) values[j] = sums[i / 2][eight * 4 + j / 2][i % 2 * 2 + j % 2] * scale[j] + bias[j];
        const std::int64_t at = static_cast<std::int64_t>(item.first + row) * M + output;
        if (float_out) {
          store_8(static_cast<float*>(out_NM) + at, values);
        } else {
          store_8(static_cast<Bf16*>(out_NM) + at, values);
        }
      }
    }
  }
};

// f32 on the CUDA cores, for the tensor cores have no f32 but TF32. The warps are 4 groups of 32 rows times 2 groups of
// 64 outputs; lane 8 i + j has rows i, i + 4, ... and outputs j, j + 8, ... of them, 8 x 8 sums.
struct FloatExpertProduct : ExpertBlocks<float, 128, 2> {
  static constexpr const char* kName = "float_expert_product";
  static constexpr int kMinBlocks = 2;
  static constexpr int kOfLane = 8;

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    const ExpertRows item = items_I[t.block_y()];
    if (!has_work(item)) return;
    Copies copies = copies_of(t, item, weights_of(item));
    for (int step = 0; step < kStages - 1; ++step) fetch(t, copies, step);
    const int first_row = t.warp() / 2 * 32, first_output = t.warp() % 2 * 64,
              output = static_cast<int>(t.block_x()) * kOutputs + first_output;
    const bool computes = first_row < item.rows && output < M;
    const Places places = {place_of_row(first_row + t.lane() / 8), kXBytes + place_of_row(first_output + t.lane() % 8)};
    Sums sums = {};
    for (int step = 0; step < steps(); ++step) {
      t.template wait_for_copies<kStages - 2>();
      t.sync();  // now the data of this step has arrived, and the next copies overwrite nothing that is still read
      fetch(t, copies, step + kStages - 1);
      if (computes) multiply(stage(t, step), places, sums);
    }
    if (computes) store(item, first_row + t.lane() / 8, output + t.lane() % 8, sums);
  }

 private:
  using Sums = float[kOfLane][kOfLane];
  // Where in a stage chunk 0 of a lane's first row and of its first output is.
  struct Places {
    int x, weights;
  };
  MAGISTER_DEVICE static int place_of_row(int row) { return row * kRowBytes + row / 2 % 4 * 16; }

  // A chunk's places differ from those of chunk 0 by the bits of its number, and those of every second row by 2 more.
  MAGISTER_DEVICE static void multiply(const unsigned char* from, const Places& places, Sums& sums) {
    for (int chunk = 0; chunk < kLanesARow; ++chunk) {
      const unsigned char* const weights = from + (places.weights ^ chunk * 16);
      Words4 of_outputs[kOfLane];
      MAGISTER_UNROLL
      for (int j = 0; j < kOfLane; ++j) of_outputs[j] = load_16(weights + 8 * j * kRowBytes);
      MAGISTER_UNROLL
      for (int i = 0; i < kOfLane; ++i) {
        const Words4 x = load_16(from + (places.x ^ (chunk ^ i % 2 * 2) * 16) + 4 * i * kRowBytes);
        MAGISTER_UNROLL
        for (int k = 0; k < 4; ++k) {
          MAGISTER_UNROLL
          for (int j = 0; j < kOfLane; ++j)
            sums[i][j] += bits_as_float(x.word[k]) * bits_as_float(of_outputs[j].word[k]);
        }
      }
    }
  }

  // Eight lanes write 32 neighbouring bytes.
  MAGISTER_DEVICE void store(const ExpertRows& item, int first_row, int first, const Sums& sums) const {
    const float* const bias_M = places_X[item.expert].bias_N;
    MAGISTER_UNROLL
    for (int j = 0; j < kOfLane; ++j) {
      const int output = first + 8 * j;
      if (output >= M) continue;
      const float bias = bias_M != nullptr ? bias_M[output] : 0.0f;
      MAGISTER_UNROLL
      for (int i = 0; i < kOfLane; ++i) {
        const int row = first_row + 4 * i;
        if (row < item.rows)
          static_cast<float*>(out_NM)[static_cast<std::int64_t>(item.first + row) * M + output] = sums[i][j] + bias;
      }
    }
  }
};

}  // namespace magister::gpu
