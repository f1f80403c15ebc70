// Converts stored codes to plain numbers [N, K] for products of many rows (once per batch, then cuBLAS). Each number is
// the f32 that the code stands for (rounded once if there are minima, else exact), then rounded to bf16 if A is bf16.
// Source: io/checkpoint/stored_codes.h. Legend: N outputs, K inputs, G groups of inputs that share a scale.
#pragma once

#include "model/gpu/product_step.h"

namespace magister::gpu {

// The kernel is limited by writing 2 of about 2.5 bytes per weight: 16 bytes per thread and store, four stores in
// flight.
template <int kBits, typename A>
struct Dequantize {
  static_assert(kBits == 8 || kBits == 4);
  static constexpr const char* kName = "dequantize";
  static constexpr int kMaxThreads = 256;
  static constexpr int kRun = 8;   // inputs that a thread converts at a time: 4 or 8 bytes of codes
  static constexpr int kRuns = 4;  // number of runs per thread, 256 threads apart
  StoredWeight weight;
  A* out_NK;  // contiguous, 16-byte aligned

  // Runs are counted in 32 bits, which is enough for 2^34 weights.
  MAGISTER_DEVICE std::uint32_t runs_a_row() const { return static_cast<std::uint32_t>(weight.K + kRun - 1) / kRun; }
  LaunchShape shape() const {
    const std::int64_t runs = static_cast<std::int64_t>(weight.N) * ((weight.K + kRun - 1) / kRun);
    return {.blocks_x = static_cast<unsigned>((runs + 256 * kRuns - 1) / (256 * kRuns)), .threads = 256};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    const std::uint32_t a_row = runs_a_row();
    // True if runs are whole, inside one group and aligned to whole words, as in all weights of real models.
    const bool whole = weight.K % kRun == 0 && weight.lead % kRun == 0 && weight.row_bytes % kBits == 0 &&
                       reinterpret_cast<std::uintptr_t>(weight.rows) % 8 == 0;
    MAGISTER_UNROLL
    for (int i = 0; i < kRuns; ++i) {
      const std::uint32_t run =
          static_cast<std::uint32_t>(t.block_x()) * (256 * kRuns) + static_cast<std::uint32_t>(i * 256 + t.thread());
      const std::uint32_t n = run / a_row;
      if (n >= static_cast<std::uint32_t>(weight.N)) break;
      const int k = static_cast<int>(run - n * a_row) * kRun;
      if (whole) {
        convert_run(n, k);
      } else {
        for (int j = k; j < k + kRun && j < weight.K; ++j) convert_one(n, j);
      }
    }
  }

 private:
  struct Group {
    float scale, offset;
  };
  MAGISTER_DEVICE Group group_of(std::int64_t n, int k) const {
    const std::int64_t at = n * weight.G + ((weight.lead + k) >> weight.group_shift);
    const float middle = kBits == 8 ? 128.0f : 8.0f;
    return {scale_as_float(weight.scales[at], weight.half_scales),
            weight.offsets == nullptr ? middle : half_as_float(weight.offsets[at])};
  }

  MAGISTER_DEVICE A value(std::uint32_t code, Group group) const {
    const auto counted = static_cast<float>(code);
    if (kBits == 4 && weight.offset == kFloatCodes) {  // e2m1, as in code_registers.h
      const float size = bits_as_float((code & 7u) << 22) * bits_as_float(0x7e800000u);
      return stored<A>((code & 8u) != 0 ? -size * group.scale : size * group.scale);
    }
    const bool minimum = weight.offset == CodeFormat::Offset::kMinimum;
    return stored<A>(minimum ? fmaf(counted, group.scale, group.offset) : (counted - group.offset) * group.scale);
  }

  MAGISTER_DEVICE void convert_run(std::int64_t n, int k) const {
    const unsigned char* first = weight.rows + n * weight.row_bytes + static_cast<std::int64_t>(k) * kBits / 8;
    const auto* words = reinterpret_cast<const std::uint32_t*>(first);
    const Group group = group_of(n, k);
    constexpr int kCodes = 32 / kBits;
    union {
      A number[kRun];
      Words4 words[sizeof(A) / 2];
    } out;
    MAGISTER_UNROLL
    for (int w = 0; w < kRun / kCodes; ++w) {
      const std::uint32_t word = kBits == 8 ? words[w] ^ 0x80808080u : words[w];
      MAGISTER_UNROLL
      for (int i = 0; i < kCodes; ++i)
        out.number[w * kCodes + i] = value(word >> (kBits * i) & ((1u << kBits) - 1), group);
    }
    A* to = out_NK + n * weight.K + k;
    MAGISTER_UNROLL
    for (std::size_t i = 0; i < sizeof(A) / 2; ++i) store_16(to + i * (16 / sizeof(A)), out.words[i]);
  }

  MAGISTER_DEVICE void convert_one(std::int64_t n, int k) const {
    const unsigned char* row = weight.rows + n * weight.row_bytes;
    const std::uint32_t code = kBits == 8 ? row[k] ^ 0x80u : row[k / 2] >> (4 * (k % 2)) & 0xfu;
    out_NK[n * weight.K + k] = value(code, group_of(n, k));
  }
};

}  // namespace magister::gpu
