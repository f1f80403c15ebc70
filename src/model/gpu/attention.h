// Decoding attention over paged keys and values: chooses the instance for a model's heads, and starts it on a queue.
// The launch depends on R and C but on no value on the device, so a CUDA graph can hold it.
// Source: attention_kernels.h. Legend as there.
#pragma once

#include "magister/device/launch.h"
#include "model/gpu/attention_kernels.h"

namespace magister::gpu {

constexpr int kMostHeadDim = 512;

// Chunks of a row that sees this number of keys. AttentionArguments::C is that of the longest row.
inline int attention_chunks(std::int64_t keys) {
  return static_cast<int>((keys + kAttentionChunk - 1) / kAttentionChunk);
}

// f32 numbers of scratch memory for both partial arrays; partial_RHC2 may follow partial_RHCV.
inline std::int64_t attention_scratch(std::int64_t R, std::int64_t H, std::int64_t C, std::int64_t V) {
  return R * H * C * (V + 2);
}

// Queues GroupedAttention for the heads of is_grouped_attention() (grouped_attention.h), else PagedAttention and
// CombineChunks. E and V must be even and at most kMostHeadDim, H a multiple of K, and q and the pages aligned to 16
// bytes. Defined for Bf16 and float.
template <typename A>
void paged_attention(const AttentionArguments<A>& arguments, const Queue& queue);

}  // namespace magister::gpu
