// GatherKeys: copies keys and values of many slots out of the pages of a cache into one contiguous tensor each, as
// flash attention reads them.
// Legend: P pages, K KV heads of this shard, E head_dim, V numbers of a head's values, N slots, A the cache's type
// (Bf16 or float).
#pragma once

#include "magister/device/device_code.h"
#include "model/gpu/page_slots.h"

namespace magister::gpu {

template <typename A>
struct GatherKeys {
  static constexpr const char* kName = "gather_keys";
  static constexpr int kMaxThreads = 256;
  static constexpr std::uint32_t kAtOnce = 4;  // 16-byte loads that each thread has in flight
  static constexpr std::uint32_t kSlots = kPageSlots;
  const A* key_pages;           // [P, K, 48, E]
  const A* value_pages;         // [P, K, 48, V]
  const std::int64_t* slots_N;  // page * 48 + slot in the page
  A* keys_NKE;
  A* values_NKV;
  std::uint32_t N, K, E;  // E and V numbers are whole 16-byte words; fewer than 2^31 words of keys, and of values
  std::uint32_t V = 0;    // 0: E

  LaunchShape shape() const {
    const std::uint32_t block = kAtOnce * kMaxThreads, of_head = (E > V ? E : V) * sizeof(A) / sizeof(Words4);
    return {.blocks_x = (N * K * of_head + block - 1) / block, .blocks_y = 2, .threads = kMaxThreads};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    const bool values = t.block_y() == 1;
    const auto* from = reinterpret_cast<const Words4*>(values ? value_pages : key_pages);
    auto* to = reinterpret_cast<Words4*>(values ? values_NKV : keys_NKE);
    const std::uint32_t of_head = (values && V > 0 ? V : E) * sizeof(A) / sizeof(Words4), of_key = K * of_head,
                        all = N * of_key;
    const auto first =
        static_cast<std::uint32_t>(t.block_x()) * kAtOnce * kMaxThreads + static_cast<std::uint32_t>(t.thread());
    Words4 words[kAtOnce];
    MAGISTER_UNROLL
    for (std::uint32_t i = 0; i < kAtOnce; ++i) {
      const std::uint32_t index = first + i * kMaxThreads;
      if (index >= all) continue;
      const std::uint32_t key = index / of_key, head = index % of_key / of_head, word = index % of_head;
      const std::int64_t slot = slots_N[key];
      words[i] = load_16(from + ((slot / kSlots * K + head) * kSlots + slot % kSlots) * of_head + word);
    }
    MAGISTER_UNROLL
    for (std::uint32_t i = 0; i < kAtOnce; ++i) {
      const std::uint32_t index = first + i * kMaxThreads;
      if (index < all) store_16(to + index, words[i]);
    }
  }
};

}  // namespace magister::gpu
