// Gives weights whose numbers are MXFP4's, read as bf16, their codes back: e2m1, and a power of two for 32 inputs.
// Source: OCP Microscaling Formats 1.0.
// Legend: N outputs, K inputs, G groups of 32 inputs.
#pragma once

#include "magister/device/device_code.h"

namespace magister::gpu {

// A thread packs 32 inputs of an output, 16 bytes. The power of two follows from the group's largest number in this
// slice. It gives all its numbers codes, whatever power the file has. Sets `inexact` where a number has no code.
struct PackMxfp4 {
  static constexpr const char* kName = "pack_mxfp4";
  static constexpr int kMaxThreads = 256;
  static constexpr int kGroup = 32;
  const Bf16* weight_NK;
  unsigned char* codes_NB;   // rows of whole 16 bytes; the even input in the lower half of a byte
  std::uint16_t* scales_NG;  // bf16
  std::int32_t* inexact;
  std::int64_t N, K, G;
  std::int64_t lead;  // inputs of the first group that another shard holds

  LaunchShape shape() const {
    const std::int64_t runs = N * ((K + kGroup - 1) / kGroup);
    return {.blocks_x = static_cast<unsigned>((runs + kMaxThreads - 1) / kMaxThreads), .threads = kMaxThreads};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    const std::int64_t runs = (K + kGroup - 1) / kGroup, run = t.block_x() * kMaxThreads + t.thread(), n = run / runs;
    if (n >= N) return;
    const std::int64_t begin = run % runs * kGroup;
    std::int64_t group = -1;
    float scale = 1;
    auto* const to = reinterpret_cast<std::uint32_t*>(codes_NB + (n * runs * kGroup + begin) / 2);
    for (int w = 0; w < 4; ++w) {
      std::uint32_t word = 0;
      for (int i = 0; i < 8 && begin + 8 * w + i < K; ++i) {
        const std::int64_t k = begin + 8 * w + i;
        if ((lead + k) / kGroup != group) {
          group = (lead + k) / kGroup;
          scale = scale_of(n, group);
          if (k == 0 || (lead + k) % kGroup == 0) scales_NG[n * G + group] = to_bf16(scale).bits;
        }
        word |= code_of(to_float(weight_NK[n * K + k]) / scale) << (4 * i);
      }
      to[w] = word;
    }
  }

 private:
  // A quarter of the power of two at or below the largest number, which then has the code of 4 or 6.
  MAGISTER_DEVICE float scale_of(std::int64_t n, std::int64_t group) const {
    const std::int64_t first = group * kGroup - lead, begin = first > 0 ? first : 0,
                       end = first + kGroup < K ? first + kGroup : K;
    float largest = 0;
    for (std::int64_t k = begin; k < end; ++k) largest = fmaxf(largest, fabsf(to_float(weight_NK[n * K + k])));
    const std::uint32_t exponent = float_as_bits(largest) >> 23;
    return largest > 0 && exponent > 2 ? bits_as_float((exponent - 2) << 23) : 1.0f;
  }

  MAGISTER_DEVICE std::uint32_t code_of(float number) const {
    const float twice = 2 * fabsf(number);
    const int size = twice <= 12 ? static_cast<int>(twice) : -1;  // 0 1 2 3 4 6 8 12, of the numbers with a code
    const bool has_code = static_cast<float>(size) == twice && (size <= 4 || size == 6 || size == 8 || size == 12);
    if (!has_code) {
      *inexact = 1;
      return 0;
    }
    const int code = size < 4 ? size : size == 12 ? 7 : size / 2 + 2;
    return static_cast<std::uint32_t>(code) | (number < 0 ? 8u : 0u);
  }
};

}  // namespace magister::gpu
