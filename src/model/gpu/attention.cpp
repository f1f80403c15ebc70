// Chooses the kernel and its instance. Plain: 8, 16 or 32 lanes per key (eight numbers each; 32 lanes, in parts, beyond
// 256 numbers) by the sizes of keys and values, and 1, 4 or 8 heads per block by the number of heads that share a KV
// head. Grouped: by the sizes, and 8 or 16 heads per block. attention_cuda.cu and grouped_attention_cuda.cu compile all
// instances. Sources: attention_kernels.h, grouped_attention_kernels.h.
#include "model/gpu/attention.h"

#include <algorithm>
#include <type_traits>

#include "magister/core/error.h"
#include "model/gpu/grouped_attention.h"
#include "model/gpu/grouped_attention_kernels.h"

namespace magister::gpu {
namespace {

template <typename A, int kLanes, int kHeads, bool kWide>
void by_runs(const AttentionArguments<A>& a, const Queue& queue) {
  if constexpr (std::is_same_v<A, Bf16>) {
    if (a.codes) return start(PagedAttention<A, kLanes, kHeads, true, kWide, E4m3>{a}, queue);
  }
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

template <typename A>
AttentionArguments<A> completed(AttentionArguments<A> a) {
  if (a.V == 0) a.V = a.E;
  MAGISTER_ASSERT(a.E > 0 && a.V > 0 && std::max(a.E, a.V) <= kMostHeadDim && a.E % 2 == 0 && a.V % 2 == 0 && a.K > 0 &&
                  a.H % a.K == 0 && a.window >= 0);
  MAGISTER_ASSERT(!a.codes || (sizeof(A) == 2 && a.E % 8 == 0 && a.V % 8 == 0));
  return a;
}

// Two blocks of 96 KB fit on a multiprocessor of an H200, so 264 on the device. From about as many on, a whole row in a
// block fills the device, and blocks of few chunks would only add partial sums. Blocks of more than 16 chunks (3,072
// keys, about 0.1 ms) would leave the device to the longest row at the end of a launch.
constexpr std::int64_t kEnoughBlocks = 256, kMostChunksOfABlock = 16;
// Two chunks one after the other take less time than FoldChunks would.
constexpr int kChunksOfAnyBlock = 2;

template <int kE, int kV, bool kCodes, typename Body>
bool with_grouped_pages(const AttentionArguments<Bf16>& a, int span, const Body& body) {
  if constexpr (kE == kV && (kE == 64 || kE == 128)) {
    if (a.H / a.K > 8) return body(GroupedAttention<kE, kV, 2, kCodes>{a, span}), true;
  }
  return body(GroupedAttention<kE, kV, 1, kCodes>{a, span}), true;
}

// Calls body with the instance for these heads, and returns false if there is none.
template <typename Body>
bool with_grouped(const AttentionArguments<Bf16>& a, int span, const Body& body) {
  const auto with = [&]<int kE, int kV>() {
    return a.codes ? with_grouped_pages<kE, kV, true>(a, span, body) : with_grouped_pages<kE, kV, false>(a, span, body);
  };
  if (a.E == 64 && a.V == 64) return with.template operator()<64, 64>();
  if (a.E == 80 && a.V == 80) return with.template operator()<80, 80>();
  if (a.E == 96 && a.V == 96) return with.template operator()<96, 96>();
  if (a.E == 128 && a.V == 128) return with.template operator()<128, 128>();
  if (a.E == 192 && a.V == 128) return with.template operator()<192, 128>();
  if (a.E == 256 && a.V == 256) return with.template operator()<256, 256>();
  return false;
}

}  // namespace

// | heads                                                         | kernel           |
// |---------------------------------------------------------------|------------------|
// | bf16 with pages of bf16 or 8-bit floats, two or more query    | GroupedAttention |
// | heads a KV head, E = V of 64, 80, 96, 128 or 256, or E = 192  |                  |
// | and V = 128; with windows, windows in chunks, soft caps and   |                  |
// | sinks                                                         |                  |
// | f32; one query head a KV head; other sizes; ALiBi             | PagedAttention   |
bool is_grouped_attention(const AttentionArguments<Bf16>& a) {
  return a.H / a.K >= 2 && a.alibi_H == nullptr && with_grouped(a, 1, [](const auto&) {});
}

int chunks_of_a_block(std::int64_t blocks, int C) {
  if (C <= kChunksOfAnyBlock) return C;
  std::int64_t span = 1;
  while (span < C && span < kMostChunksOfABlock && blocks * ((C + 2 * span - 1) / (2 * span)) >= kEnoughBlocks)
    span *= 2;
  return static_cast<int>(std::min<std::int64_t>(span, C));
}

void grouped_attention(const AttentionArguments<Bf16>& a, int chunks_a_block, const Queue& queue) {
  MAGISTER_ASSERT(a.q_stride % 8 == 0 && a.out_stride % 8 == 0 && chunks_a_block > 0);
  [[maybe_unused]] const bool is_known =
      with_grouped(a, chunks_a_block, [&](const auto& kernel) { start(kernel, queue); });
  MAGISTER_ASSERT(is_known);
  if (chunks_a_block < a.C) start(FoldChunks{a, chunks_a_block}, queue);
}

template <typename A>
void plain_paged_attention(const AttentionArguments<A>& arguments, const Queue& queue) {
  const AttentionArguments<A> a = completed(arguments);
  if (a.R == 0) return;
  const int most = std::max(a.E, a.V);
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

template <typename A>
void paged_attention(const AttentionArguments<A>& arguments, const Queue& queue) {
  if constexpr (std::is_same_v<A, Bf16>) {
    const AttentionArguments<A> a = completed(arguments);
    if (is_grouped_attention(a)) {
      std::int64_t blocks = 0;  // for each chunk of the longest row
      with_grouped(a, 1, [&](const auto& kernel) { blocks = std::int64_t{a.R} * a.K * kernel.head_blocks(); });
      if (a.R > 0) grouped_attention(a, chunks_of_a_block(blocks, a.C), queue);
      return;
    }
  }
  plain_paged_attention(arguments, queue);
}

template void plain_paged_attention(const AttentionArguments<Bf16>&, const Queue&);
template void plain_paged_attention(const AttentionArguments<float>&, const Queue&);
template void paged_attention(const AttentionArguments<Bf16>&, const Queue&);
template void paged_attention(const AttentionArguments<float>&, const Queue&);

}  // namespace magister::gpu
