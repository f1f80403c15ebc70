// Parts of tensor-core products out of shared memory.
// Source: the PTX ISA's ldmatrix.
#pragma once

#include "magister/device/device_code.h"

namespace magister::gpu {

// Four matrices of 8 rows of 16 bytes in shared memory. Lane 8 i + r gives the place of row r of matrix i, and gets in
// word i bytes [4 c, 4 c + 4) of row g of matrix i, with g = lane / 4, c = lane % 4: the form in which
// mma_bf16() takes its factors. All lanes of a warp take part.
template <typename Thread>
MAGISTER_DEVICE Words4 load_matrices([[maybe_unused]] Thread& t, const unsigned char* row) {
  Words4 words;
#if defined(__CUDACC__)
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(words.word[0]), "=r"(words.word[1]), "=r"(words.word[2]), "=r"(words.word[3])
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(row)))
               : "memory");
#else
  const Words4 own = load_16(row);
  for (int i = 0; i < 4; ++i) words.word[i] = t.shuffle(own, 8 * i + t.lane() / 4).word[t.lane() % 4];
#endif
  return words;
}

}  // namespace magister::gpu
