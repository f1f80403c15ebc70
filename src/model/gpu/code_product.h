// Starts a CodeProduct: which weights it multiplies, the instance for their codes, and the memory of its pieces.
// Legend: M rows, N outputs, K inputs.
#pragma once

#include "magister/device/launch.h"
#include "model/gpu/code_shares.h"
#include "model/gpu/gpu_linear.h"

namespace magister::gpu {

// True for shapes whose rows come in whole 16 bytes and groups. first_input: of the whole weight's inputs, the first
// that this shard holds.
constexpr bool code_product_fits(std::int64_t N, std::int64_t K, std::int64_t first_input) {
  return N % 8 == 0 && K > 0 && K % 32 == 0 && first_input % 32 == 0;
}
// True for int8 and int4 weights of such shapes. Others become bf16 before their products.
bool takes_codes(const GpuLinear& linear);

// f32 numbers of the pieces of a product of as many rows.
constexpr std::int64_t code_piece_numbers(std::int64_t M, std::int64_t N, std::int64_t K) {
  return CodeShares::of(N, K).num_pieces() * M * CodeShares::kOutputs;
}

// out[M, N] = x[M, K] * weight^T + bias, where each weight is the bf16 number that products over prompts use, with f32
// sums that round once. A row's bits are its own, whatever M is. x and the result: rows and strides of whole 16 bytes;
// at most kMostDecodeRows rows. bits: 8 or 4; group as for decode_product(). pieces: place for code_piece_numbers(),
// which nothing else uses before the product is done. Two launches, queued.
void code_product(ProductArguments arguments, int bits, int group, float* pieces, const Queue& queue);

}  // namespace magister::gpu
