// Chooses the instance: 8, 16 or 32 lanes per key (eight numbers each; 32 lanes, in parts, beyond 256 numbers) by the
// sizes of keys and values, and 1, 4 or 8 heads per block by the number of heads that share a KV head.
// attention_cuda.cu compiles all instances.
// Source: attention_kernels.h.
#include "model/gpu/attention.h"

#include <algorithm>

#include "magister/core/error.h"

namespace magister::gpu {
namespace {

template <typename A, int kLanes, int kHeads, bool kWide>
void by_runs(const AttentionArguments<A>& a, const Queue& queue) {
  a.E % 8 == 0 && a.V % 8 == 0 ? start(PagedAttention<A, kLanes, kHeads, true, kWide>{a}, queue)
                               : start(PagedAttention<A, kLanes, kHeads, false, kWide>{a}, queue);
}

template <typename A, int kLanes, bool kWide = false>
void by_heads(const AttentionArguments<A>& a, const Queue& queue) {
  const int shared = a.H / a.K;
  if (shared == 1) {
    by_runs<A, kLanes, 1, kWide>(a, queue);
  } else if (shared <= 4) {
    by_runs<A, kLanes, 4, kWide>(a, queue);
  } else {
    by_runs<A, kLanes, 8, kWide>(a, queue);
  }
}

}  // namespace

template <typename A>
void paged_attention(const AttentionArguments<A>& arguments, const Queue& queue) {
  AttentionArguments<A> a = arguments;
  if (a.V == 0) a.V = a.E;
  const int most = std::max(a.E, a.V);
  MAGISTER_ASSERT(a.E > 0 && a.V > 0 && most <= kMostHeadDim && a.E % 2 == 0 && a.V % 2 == 0 && a.K > 0 &&
                  a.H % a.K == 0 && a.window >= 0);
  if (a.R == 0) return;
  if (most <= 64) {
    by_heads<A, 8>(a, queue);
  } else if (most <= 128) {
    by_heads<A, 16>(a, queue);
  } else if (most <= 256) {
    by_heads<A, 32>(a, queue);
  } else {
    by_heads<A, 32, true>(a, queue);
  }
  start(CombineChunks<A>{a}, queue);
}

template void paged_attention(const AttentionArguments<Bf16>&, const Queue&);
template void paged_attention(const AttentionArguments<float>&, const Queue&);

}  // namespace magister::gpu
