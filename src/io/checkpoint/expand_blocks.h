// Expands one ggml block into f32: blocks of 2- or 3-bit numbers with shared scales, or of indices into a codebook of
// 16 entries. Source: ggml's block_q2_K, block_q3_K, block_iq4_nl, block_mxfp4; OCP Microscaling Formats 1.0 for
// MXFP4's numbers.
#pragma once

#include <cstddef>

namespace magister {

void expand_q2_k(const std::byte* block, float* out);    // 84 bytes, 256 elements
void expand_q3_k(const std::byte* block, float* out);    // 110 bytes, 256 elements
void expand_iq4_nl(const std::byte* block, float* out);  // 18 bytes, 32 elements
void expand_mxfp4(const std::byte* block, float* out);   // 17 bytes, 32 elements

}  // namespace magister
