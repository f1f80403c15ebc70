// Keys and values in 8-bit floats (model.kv_cache: fp8). A page of a KV head is one record: 48 vectors of E codes, then
// 48 bytes, the power of two by which each vector is scaled. A vector is rounded alone, so its codes depend on nothing
// but itself, and a page never changes the codes that it has.
// Legend: P pages, K KV heads of this shard, E head_dim, V numbers of a head's values (both multiples of 8), N slots.
#pragma once

#include "model/gpu/e4m3.h"
#include "model/gpu/page_slots.h"

namespace magister::gpu {

// One of the 48 vectors of a record.
struct CodeVector {
  const std::uint8_t* codes;  // [size], aligned to 8 bytes
  std::uint32_t power;        // of the scale, see power_for_e4m3()

  static constexpr std::int64_t kSlots = kPageSlots;
  // Bytes of a record with vectors of `size` numbers.
  MAGISTER_DEVICE static std::int64_t record_bytes(std::int64_t size) { return kSlots * (size + 1); }
  MAGISTER_DEVICE static CodeVector of(const std::uint8_t* record, std::int64_t size, std::int64_t slot) {
    return {record + slot * size, record[kSlots * size + slot]};
  }
};

// Writes a vector into slot `slot` of its record, and rounds x [size] to the numbers that the codes mean: prompts
// attend to what later tokens will read. Called by a whole warp, whose lanes see x.
template <typename Thread>
MAGISTER_DEVICE void place_codes(Thread& t, Bf16* x, std::int64_t size, std::uint8_t* record, std::int64_t slot) {
  std::uint32_t largest = 0;
  for (std::int64_t e = t.lane() * 8; e < size; e += kWarp * 8) {
    const Words4 words = load_16(x + e);
    MAGISTER_UNROLL
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t low = words.word[i] << 16 & 0x7fff0000u, high = words.word[i] & 0x7fff0000u;
      largest = low > largest ? low : largest;
      largest = high > largest ? high : largest;
    }
  }
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    const std::uint32_t other = t.shuffle_xor(largest, mask);
    largest = other > largest ? other : largest;
  }
  const std::uint32_t power = power_for_e4m3(largest);
  const float scale = power_as_float(power), inverse = inverse_of_power(power);
  for (std::int64_t e = t.lane() * 8; e < size; e += kWarp * 8) {
    float values[8];
    load_8(x + e, values);
    MAGISTER_UNROLL
    for (int i = 0; i < 8; ++i) values[i] *= inverse;
    const Words2 codes = e4m3_words(values);
    *reinterpret_cast<Words2*>(record + slot * size + e) = codes;
    MAGISTER_UNROLL
    for (int i = 0; i < 8; ++i) values[i] = from_e4m3(codes.word[i / 4], i % 4) * scale;
    store_8(x + e, values);
  }
  if (t.lane() == 0) record[CodeVector::kSlots * size + slot] = static_cast<std::uint8_t>(power);
}

// GatherKeys (gather_kernel.h) for codes: the numbers that they mean, in bf16, without rounding.
struct GatherCodes {
  static constexpr const char* kName = "gather_codes";
  static constexpr int kMaxThreads = 256;
  static constexpr std::uint32_t kAtOnce = 4;  // 8-byte loads that each thread has in flight
  const std::uint8_t* key_pages;               // [P, K, 48 (E + 1)]
  const std::uint8_t* value_pages;             // [P, K, 48 (V + 1)]
  const std::int64_t* slots_N;                 // page * 48 + slot in the page
  Bf16* keys_NKE;
  Bf16* values_NKV;
  std::uint32_t N, K, E, V;  // fewer than 2^31 eights of numbers of keys, and of values

  LaunchShape shape() const {
    const std::uint32_t block = kAtOnce * kMaxThreads, of_head = (E > V ? E : V) / 8;
    return {.blocks_x = (N * K * of_head + block - 1) / block, .blocks_y = 2, .threads = kMaxThreads};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    const bool values = t.block_y() == 1;
    const std::uint8_t* pages = values ? value_pages : key_pages;
    Bf16* to = values ? values_NKV : keys_NKE;
    const std::uint32_t size = values ? V : E, of_head = size / 8, of_key = K * of_head, all = N * of_key;
    const auto first =
        static_cast<std::uint32_t>(t.block_x()) * kAtOnce * kMaxThreads + static_cast<std::uint32_t>(t.thread());
    Words2 codes[kAtOnce];
    float scales[kAtOnce];
    MAGISTER_UNROLL
    for (std::uint32_t i = 0; i < kAtOnce; ++i) {
      const std::uint32_t index = first + i * kMaxThreads;
      if (index >= all) continue;
      const std::uint32_t key = index / of_key, head = index % of_key / of_head, part = index % of_head;
      const std::int64_t slot = slots_N[key];
      const CodeVector vector =
          CodeVector::of(pages + (slot / CodeVector::kSlots * K + head) * CodeVector::record_bytes(size), size,
                         slot % CodeVector::kSlots);
      codes[i] = *reinterpret_cast<const Words2*>(vector.codes + part * 8);
      scales[i] = power_as_float(vector.power);
    }
    MAGISTER_UNROLL
    for (std::uint32_t i = 0; i < kAtOnce; ++i) {
      const std::uint32_t index = first + i * kMaxThreads;
      if (index >= all) continue;
      float eight[8];
      MAGISTER_UNROLL
      for (int j = 0; j < 8; ++j) eight[j] = from_e4m3(codes[i].word[j / 4], j % 4) * scales[i];
      store_8(to + static_cast<std::int64_t>(index) * 8, eight);
    }
  }
};

}  // namespace magister::gpu
