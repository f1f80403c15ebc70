// Converts the codes of several experts to plain numbers in one launch, for the products of expert_product_kernel.h.
// Legend: N outputs, K inputs, X experts, C codes of an expert.
#pragma once

#include "model/gpu/dequantize_kernel.h"
#include "model/gpu/grouped_product_kernel.h"

namespace magister::gpu {

template <int kBits, typename A>
struct DequantizeExperts {
  static constexpr const char* kName = "dequantize_experts";
  static constexpr int kMaxThreads = 256;
  Dequantize<kBits, A> first;  // its weight has no places; the result of the first expert, before all others
  const ExpertPlace* places_X;
  int X;

  LaunchShape shape() const {
    LaunchShape shape = first.shape();
    shape.blocks_y = static_cast<unsigned>(X);
    return shape;
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    const ExpertPlace place = places_X[t.block_y()];
    Dequantize<kBits, A> own = first;
    own.weight.rows = place.rows;
    own.weight.scales = place.scales;
    own.weight.offsets = place.offsets;
    own.out_NK += t.block_y() * own.weight.N * own.weight.K;
    own(t);
  }
};

// Codes of e4m3 as the bf16 numbers that they stand for, which is exact; the product multiplies its sums by the scales
// of the outputs. 16 bytes of codes a thread and load, four in flight.
struct WidenExperts {
  static constexpr const char* kName = "widen_experts";
  static constexpr int kMaxThreads = 256;
  static constexpr int kRun = 16, kRuns = 4;
  std::int64_t C;  // a multiple of 16; the codes are neighbours
  const ExpertPlace* places_X;
  int X;
  Bf16* out_XC;

  LaunchShape shape() const {
    constexpr std::int64_t kOfBlock = kMaxThreads * kRun * kRuns;
    return {.blocks_x = static_cast<unsigned>((C + kOfBlock - 1) / kOfBlock),
            .blocks_y = static_cast<unsigned>(X),
            .threads = kMaxThreads};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    const unsigned char* const codes = places_X[t.block_y()].rows;
    const std::int64_t first = t.block_x() * kRuns * kMaxThreads + t.thread();
    Words4 words[kRuns];
    MAGISTER_UNROLL
    for (int i = 0; i < kRuns; ++i) {
      const std::int64_t at = (first + i * kMaxThreads) * kRun;
      if (at < C) words[i] = load_16_once(codes + at);
    }
    MAGISTER_UNROLL
    for (int i = 0; i < kRuns; ++i) {
      const std::int64_t at = (first + i * kMaxThreads) * kRun;
      if (at >= C) break;
      MAGISTER_UNROLL
      for (int half = 0; half < 2; ++half) {
        std::uint32_t pairs[4];  // of codes (0, 2) (1, 3) (4, 6) (5, 7)
        CodeUnit<8>::widen<kFloatCodes>(words[i].word + 2 * half, 0, pairs);
        store_16(out_XC + t.block_y() * C + at + 8 * half,
                 {lower_halves(pairs[0], pairs[1]), upper_halves(pairs[0], pairs[1]), lower_halves(pairs[2], pairs[3]),
                  upper_halves(pairs[2], pairs[3])});
      }
    }
  }
};

}  // namespace magister::gpu
