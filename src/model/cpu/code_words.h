// Packs codes of one byte each into the words of quantised panels: 8 nibbles or 4 bytes of one output, the first in the
// lowest bits. Include this only in files that are built for AVX2: packing a word of nibbles is one instruction of
// BMI2.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "magister/model/cpu/matmul.h"

namespace magister {

// codes: num_words * 32 / bits of them, each below 2^bits. words: those of one output in a panel, [num_words, 48].
inline void place_words(const std::uint8_t* codes, std::int64_t bits, std::int64_t num_words, std::uint32_t* words) {
  if (bits == 8) {
    for (std::int64_t w = 0; w < num_words; ++w)
      std::memcpy(words + w * Linear::kPanel, codes + 4 * w, sizeof(std::uint32_t));
    return;
  }
  for (std::int64_t w = 0; w < num_words; ++w) {
    std::uint64_t eight;
    std::memcpy(&eight, codes + 8 * w, sizeof eight);
    words[w * Linear::kPanel] = static_cast<std::uint32_t>(_pext_u64(eight, 0x0F0F0F0F0F0F0F0Full));
  }
}

}  // namespace magister
