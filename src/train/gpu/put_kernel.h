// Puts a parameter's gradient into the sum of its step: copies it, or adds it to what is there, and checks it on the
// way.
#pragma once

#include "magister/device/device_code.h"

namespace magister::gpu {

struct PutNumbers {
  static constexpr const char* kName = "put_numbers";
  static constexpr int kMaxThreads = 256;
  static constexpr int kAtOnce = 4;  // times four numbers, per thread
  const float* from;                 // both 16-byte aligned
  float* to;
  std::int64_t count;
  bool adds;                  // to + from instead of from
  std::uint32_t* not_finite;  // becomes 1 if a number of `from` is not finite; otherwise unchanged

  LaunchShape shape() const {
    constexpr std::int64_t kNumbers = 4 * kAtOnce * kMaxThreads;
    return {.blocks_x = static_cast<unsigned>((count + kNumbers - 1) / kNumbers), .threads = kMaxThreads};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    constexpr std::uint32_t kExponent = 0x7f800000u;
    bool bad = false;
    MAGISTER_UNROLL
    for (int k = 0; k < kAtOnce; ++k) {
      const std::int64_t i = 4 * ((t.block_x() * kAtOnce + k) * kMaxThreads + t.thread());
      if (i + 4 <= count) {
        Words4 x = load_16_once(from + i);
        const Words4 before = adds ? load_16(to + i) : Words4{};
        MAGISTER_UNROLL
        for (int j = 0; j < 4; ++j) {
          bad = bad || (x.word[j] & kExponent) == kExponent;
          if (adds) x.word[j] = float_as_bits(bits_as_float(before.word[j]) + bits_as_float(x.word[j]));
        }
        store_16(to + i, x);
      } else {
        for (std::int64_t j = i; j < count; ++j) {
          bad = bad || (float_as_bits(from[j]) & kExponent) == kExponent;
          to[j] = adds ? to[j] + from[j] : from[j];
        }
      }
    }
    if (bad) *not_finite = 1;  // every thread that finds one writes the same
  }
};

}  // namespace magister::gpu
