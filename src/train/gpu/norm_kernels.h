// The RMS norm of a training pass, forward and backward. Wide rows have a block each, narrow ones (heads, small models)
// a warp.
// The weight's gradient is summed in two steps without atomics: here over the few rows that a block (or warp) goes
// through one after the other, then over those partial sums by the code that started the kernel. The rows of a partial
// sum depend only on the sizes.
// Legend: R rows, D numbers of a row, U partial sums, H rows that follow each other in memory (heads of a token), X
// type of the rows (Bf16 or float), G type of the gradient by the norm's output.
#pragma once

#include "magister/device/numbers_at_once.h"

namespace magister::gpu {

// Shared by both directions: the layout of rows. Row r begins at (r / H) * stride + (r % H) * D.
struct NormRowsOf {
  std::int64_t R, D, H, stride;
  bool eight;  // rows begin at multiples of eight numbers, in all tensors

  static constexpr std::int64_t kWide = 1024;  // from here on a block per row
  static constexpr unsigned kThreads = 256, kWarps = kThreads / kWarp;
  MAGISTER_DEVICE std::int64_t begin(std::int64_t row) const { return row / H * stride + row % H * D; }
  bool wide() const { return D >= kWide; }
};

// out = weight * x / rms(x), and 1 / rms of each row for the backward pass.
template <typename X, typename Out>
struct TrainNorm {
  static constexpr const char* kName = "train_norm";
  static constexpr int kMaxThreads = NormRowsOf::kThreads;
  const X* x;
  const float* weight_D;
  Out* out_RD;
  float* roots_R;
  NormRowsOf rows;
  float eps;

  LaunchShape shape() const {
    const std::int64_t at_once = rows.wide() ? 1 : NormRowsOf::kWarps;
    return {.blocks_x = static_cast<unsigned>((rows.R + at_once - 1) / at_once),
            .threads = NormRowsOf::kThreads,
            .shared_bytes = kWarp * sizeof(float)};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    if (rows.D >= NormRowsOf::kWide) {
      rows.eight ? run<8, true>(t) : run<1, true>(t);
    } else {
      rows.eight ? run<8, false>(t) : run<1, false>(t);
    }
  }

 private:
  template <int kAtOnce, bool kBlock, typename Thread>
  MAGISTER_DEVICE void run(Thread& t) const {
    const std::int64_t row = kBlock ? t.block_x() : t.block_x() * NormRowsOf::kWarps + t.warp();
    if (row >= rows.R) return;  // all threads of a warp, or none
    const std::int64_t first = (kBlock ? t.thread() : t.lane()) * kAtOnce,
                       step = (kBlock ? t.num_threads() : kWarp) * kAtOnce;
    const X* const from = x + rows.begin(row);
    float squares = 0;
    for (std::int64_t d = first; d < rows.D; d += step) {
      float values[kAtOnce];
      load<kAtOnce>(from + d, values);
      MAGISTER_UNROLL
      for (int i = 0; i < kAtOnce; ++i) squares += values[i] * values[i];
    }
    if constexpr (kBlock) {
      squares = block_sum(t, squares, reinterpret_cast<float*>(t.shared()));
    } else {
      squares = warp_sum(t, squares);
    }
    const float root = 1.0f / sqrtf(squares / static_cast<float>(rows.D) + eps);
    if (first == 0) roots_R[row] = root;
    for (std::int64_t d = first; d < rows.D; d += step) {
      float values[kAtOnce], weights[kAtOnce];
      load<kAtOnce>(from + d, values);
      load<kAtOnce>(weight_D + d, weights);
      MAGISTER_UNROLL
      for (int i = 0; i < kAtOnce; ++i) values[i] = weights[i] * (values[i] * root);
      store<kAtOnce>(out_RD + row * rows.D + d, values);
    }
  }
};

// The gradients by x, plus that of another branch from x if there is one, and by the weight.
template <typename X, typename G>
struct TrainNormBack {
  static constexpr const char* kName = "train_norm_back";
  static constexpr int kMaxThreads = NormRowsOf::kThreads;
  const G* gradient_RD;
  const X* x;
  const float* weight_D;
  const float* roots_R;
  const float* other_RD;  // or nullptr
  X* of_x;                // its rows are laid out as those of x
  float* partial_UD;      // or nullptr: the weight is frozen
  NormRowsOf rows;

  static constexpr std::int64_t kRowsOfBlock = 8, kRowsOfWarp = 32;

  // The number U of partial sums.
  std::int64_t num_partial() const {
    const std::int64_t each = rows.wide() ? kRowsOfBlock : kRowsOfWarp;
    return (rows.R + each - 1) / each;
  }
  LaunchShape shape() const {
    const std::int64_t at_once = rows.wide() ? 1 : NormRowsOf::kWarps;
    return {.blocks_x = static_cast<unsigned>((num_partial() + at_once - 1) / at_once),
            .threads = NormRowsOf::kThreads,
            .shared_bytes = (kWarp + static_cast<std::size_t>(at_once * rows.D)) * sizeof(float)};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    if (rows.D >= NormRowsOf::kWide) {
      rows.eight ? run<8, true>(t) : run<1, true>(t);
    } else {
      rows.eight ? run<8, false>(t) : run<1, false>(t);
    }
  }

 private:
  // A thread has the same columns in every row, so no other thread reads or writes its sums.
  template <int kAtOnce, bool kBlock, typename Thread>
  MAGISTER_DEVICE void run(Thread& t) const {
    const std::int64_t unit = kBlock ? t.block_x() : t.block_x() * NormRowsOf::kWarps + t.warp();
    const std::int64_t each = kBlock ? kRowsOfBlock : kRowsOfWarp;
    if (unit * each >= rows.R) return;
    const std::int64_t first = (kBlock ? t.thread() : t.lane()) * kAtOnce,
                       step = (kBlock ? t.num_threads() : kWarp) * kAtOnce;
    auto* const scratch = reinterpret_cast<float*>(t.shared());
    float* const sums_D = scratch + kWarp + (kBlock ? 0 : t.warp() * rows.D);
    for (std::int64_t d = first; d < rows.D; d += step) {
      MAGISTER_UNROLL
      for (int i = 0; i < kAtOnce; ++i) sums_D[d + i] = 0;
    }
    for (std::int64_t row = unit * each; row < rows.R && row < (unit + 1) * each; ++row) {
      float along = 0;
      for (std::int64_t d = first; d < rows.D; d += step) {
        float gradients[kAtOnce], values[kAtOnce], weights[kAtOnce];
        load<kAtOnce>(gradient_RD + row * rows.D + d, gradients);
        load<kAtOnce>(x + rows.begin(row) + d, values);
        load<kAtOnce>(weight_D + d, weights);
        MAGISTER_UNROLL
        for (int i = 0; i < kAtOnce; ++i) along += gradients[i] * weights[i] * values[i];
      }
      if constexpr (kBlock) {
        along = block_sum(t, along, scratch);
      } else {
        along = warp_sum(t, along);
      }
      back<kAtOnce>(row, first, step, along, sums_D);
    }
    if (partial_UD == nullptr) return;
    for (std::int64_t d = first; d < rows.D; d += step) {
      float sums[kAtOnce];
      MAGISTER_UNROLL
      for (int i = 0; i < kAtOnce; ++i) sums[i] = sums_D[d + i];
      store<kAtOnce>(partial_UD + unit * rows.D + d, sums);
    }
  }

  template <int kAtOnce>
  MAGISTER_DEVICE void back(std::int64_t row, std::int64_t first, std::int64_t step, float along, float* sums_D) const {
    const float root = roots_R[row], share = along * root * root / static_cast<float>(rows.D);
    for (std::int64_t d = first; d < rows.D; d += step) {
      float gradients[kAtOnce], values[kAtOnce], weights[kAtOnce], out[kAtOnce] = {};
      load<kAtOnce>(gradient_RD + row * rows.D + d, gradients);
      load<kAtOnce>(x + rows.begin(row) + d, values);
      load<kAtOnce>(weight_D + d, weights);
      if (other_RD != nullptr) load<kAtOnce>(other_RD + row * rows.D + d, out);
      MAGISTER_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        out[i] += root * (gradients[i] * weights[i] - values[i] * share);
        sums_D[d + i] += gradients[i] * values[i] * root;
      }
      store<kAtOnce>(of_x + rows.begin(row) + d, out);
    }
  }
};

}  // namespace magister::gpu
