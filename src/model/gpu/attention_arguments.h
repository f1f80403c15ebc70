// Arguments of decoding attention over the pages of a cache, the keys that a row sees, and ALiBi's terms of its scores.
// Legend: as in attention_kernels.h.
#pragma once

#include "magister/device/device_code.h"
#include "model/gpu/page_slots.h"

namespace magister::gpu {

template <typename A>
struct AttentionArguments {
  const A* q;                      // [R, H, E], part of wider rows
  std::int64_t q_stride;           // numbers between two rows
  const A* key_pages;              // [P, K, 48, E], or with `codes` records of bytes (kv_code_kernels.h)
  const A* value_pages;            // [P, K, 48, V]
  const std::int32_t* page_table;  // [S, table_stride]: key j is in page j / 48, slot j % 48
  const std::int32_t* sequence_R;  // row of page_table for each query row
  const std::int32_t* visible_R;   // number of keys that a row sees, including its own; 0: the result is zero
  A* out;                          // [R, H, V]
  std::int64_t table_stride, out_stride;
  float* partial_RHCV;  // scratch: weighted sums of values, not yet divided
  float* partial_RHC2;  // scratch: maximum and sum of exponentials per chunk
  int R, H, K, E, C;    // C: at least the chunks of the longest row; a larger C only adds idle blocks
  int window;           // only the last `window` keys are visible; 0: all
  float scale;
  float softcap = 0;               // scores become softcap * tanh(score / softcap); 0: none
  int V = 0;                       // 0: E
  bool chunked = false;            // the window begins at a multiple of `window`
  const float* sinks_H = nullptr;  // one more score for each head, which has no value
  const float* alibi_H = nullptr;  // ALiBi's slopes, see alibi_term()
  bool alibi_in_bf16 = false;
  bool codes = false;
};

// Small enough that one text of 4,096 tokens and 8 KV heads gives 176 blocks for 132 multiprocessors. Writing and
// reading the partial sums adds 4 % to the bytes of its keys and values at E = 128 and 4 heads per KV head.
constexpr int kAttentionChunk = 192;

// The first of the `visible` keys that a row sees.
template <typename A>
MAGISTER_DEVICE int first_key(const AttentionArguments<A>& a, int visible) {
  if (a.window == 0 || visible == 0) return 0;
  const int first = a.chunked ? (visible - 1) / a.window * a.window : visible - a.window;
  return first > 0 ? first : 0;
}

// Keys [low, high) of chunk c that a row sees.
struct ChunkKeys {
  int low, high;
  MAGISTER_DEVICE ChunkKeys(int chunk, int visible, int first) {
    low = chunk * kAttentionChunk;
    high = low + kAttentionChunk < visible ? low + kAttentionChunk : visible;
    if (low < first) low = first;
  }
};

MAGISTER_DEVICE float rounded_to_bf16(float x) { return to_float(to_bf16(x)); }

// ALiBi's term of the score of a key, for the query at position `query`. With scale > 0, slopes and their products with
// positions are rounded to bf16, and the term is multiplied by `scale`.
MAGISTER_DEVICE float alibi_term(float slope, int key, int query, float scale) {
  if (scale == 0) return slope * static_cast<float>(key - query);
  const float rounded = rounded_to_bf16(slope);
  return scale * (rounded_to_bf16(rounded * rounded_to_bf16(static_cast<float>(key))) -
                  rounded_to_bf16(rounded * rounded_to_bf16(static_cast<float>(query))));
}

}  // namespace magister::gpu
