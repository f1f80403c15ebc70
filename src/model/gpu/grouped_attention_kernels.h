// Attention of single queries over the pages of a cache (decoding) on the tensor cores, for query heads in groups and
// pages of bf16 or of codes. A block computes the queries of one KV head, eight or sixteen as a tile, over one chunk
// after the other. A page of a chunk belongs to one warp, which copies its own keys and values, so warps wait for each
// other only at the end of a chunk. A chunk's sums are made from its own keys alone and added as
// grouped_attention_sums.h says, so the bits of a row depend neither on its neighbours nor on the chunks of a block.
// Sources: flash decoding (Dao et al., 2023); grouped-query attention, arXiv 2305.13245. Legend: as in
// attention_kernels.h.
#pragma once

#include <type_traits>

#include "model/gpu/grouped_attention_codes.h"
#include "model/gpu/grouped_attention_page.h"
#include "model/gpu/grouped_attention_sums.h"

namespace magister::gpu {

// kE, kV: E and V, multiples of 16. kTiles: groups of eight query heads in a block. kCodes: the arguments' pages are
// records of codes (kv_code_kernels.h).
template <int kE, int kV, int kTiles, bool kCodes = false>
struct GroupedAttention {
  static constexpr const char* kName = kCodes ? "grouped_attention_of_codes" : "grouped_attention";
  using Pages = std::conditional_t<kCodes, GroupedCodePage<kE, kV, kTiles>, GroupedPage<kE, kV, kTiles>>;
  using Page = typename Pages::Page;
  using PageSums = typename Pages::PageSums;
  static constexpr int kPageBytes = Pages::kKeyBytes + Pages::kValueBytes;
  static constexpr int kChunkPages = kAttentionChunk / kPageSlots;
  // Compute capability 8.6 has 99 KB.
  static constexpr int kWarps = kChunkPages * kPageBytes <= 99 << 10 ? kChunkPages : kChunkPages / 2;
  static constexpr int kPagesAWarp = kChunkPages / kWarps;
  static constexpr int kMaxThreads = kWarps * kWarp;
  // Three blocks leave 168 registers, too few for the sums of 16 heads of more than 64 numbers.
  static constexpr int kMinBlocks = kWarps * kPageBytes > 64 << 10 || kTiles * kV > 128 ? 2 : 3;
  static constexpr int kHeads = 8 * kTiles;
  // A warp leaves its sums where its values were: maxima and totals, then [head][kLeftPitch].
  static constexpr int kLeftPitch = kV + 4;
  static_assert(4 * (2 * kHeads + kHeads * kLeftPitch) <= Pages::kValueBytes);
  // Threads that add the sums of a head, and their vectors of eight numbers.
  static constexpr int kLanesAHead = kMaxThreads / kHeads, kVectors = (kV + 8 * kLanesAHead - 1) / (8 * kLanesAHead);
  using HeadSums = KeySums<kVectors>;
  AttentionArguments<Bf16> a;
  int span;  // chunks of a block

  int head_blocks() const { return (a.H / a.K + kHeads - 1) / kHeads; }
  LaunchShape shape() const {
    return {.blocks_x = static_cast<unsigned>(a.R),
            .blocks_y = static_cast<unsigned>(a.K * head_blocks()),
            .blocks_z = static_cast<unsigned>((a.C + span - 1) / span),
            .threads = kMaxThreads,
            .shared_bytes = static_cast<std::size_t>(kWarps) * kPageBytes};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    const Place place = place_of(t);
    const RowChunks seen(place.visible, place.first);
    const int span_begin = static_cast<int>(t.block_z()) * span;
    int chunk = seen.begin > span_begin ? seen.begin : span_begin;
    const int end = seen.end < span_begin + span ? seen.end : span_begin + span;
    if (chunk >= end && (seen.end > 0 || span_begin > 0)) return;
    const bool is_whole = seen.in_one_block(span);
    unsigned char *const keys = t.shared() + t.warp() * kPageBytes, *const values = keys + Pages::kKeyBytes;
    Pages::clear_ends_of_keys(t, keys);
    Page page = page_of(t, place, chunk, 0, end);
    Pages::template copy_rows<kE>(t, a.key_pages, page, keys);
    Pages::template copy_rows<kV>(t, a.value_pages, page, values);
    const int head = t.thread() / kLanesAHead;
    HeadSums sums;
    if (a.sinks_H != nullptr && head < place.heads) sums.begin_with_sink(a.sinks_H[place.first_head + head]);
    for (; chunk < end; ++chunk) {
      PageSums of_warp;
      MAGISTER_UNROLL
      for (int i = 0; i < kPagesAWarp; ++i) {
        const bool is_last = i + 1 == kPagesAWarp;
        const Page next = page_of(t, place, chunk + (is_last ? 1 : 0), is_last ? 0 : i + 1, end);
        typename Pages::Scores scores;
        t.template wait_for_copies<1>();
        t.sync_warp();
        if (page.is_seen()) Pages::score(t, a, place.q, place.heads, keys, scores);
        t.sync_warp();
        Pages::template copy_rows<kE>(t, a.key_pages, next, keys);
        if (page.is_seen()) Pages::template exponentials<(kPagesAWarp > 1)>(t, page, scores, of_warp);
        t.template wait_for_copies<1>();
        t.sync_warp();
        if (page.is_seen()) Pages::add_values(t, page, values, scores, of_warp);
        t.sync_warp();
        if (!is_last) Pages::template copy_rows<kV>(t, a.value_pages, next, values);
        page = next;
      }
      leave(t, place, of_warp, reinterpret_cast<float*>(values));
      t.sync();
      if (head < place.heads) gather(t, place, chunk, is_whole, sums);
      t.sync();
      Pages::template copy_rows<kV>(t, a.value_pages, page, values);
    }
    if (is_whole && head < place.heads) finish(t, place, sums);
  }

 private:
  struct Place {
    int row, visible, first, kv_head, first_head, heads;
    const std::int32_t* table;
    const Bf16* q;  // of the first head
  };

  template <typename Thread>
  MAGISTER_DEVICE Place place_of(Thread& t) const {
    const int row = static_cast<int>(t.block_x()), a_kv_head = a.H / a.K, blocks = (a_kv_head + kHeads - 1) / kHeads,
              kv_head = static_cast<int>(t.block_y()) / blocks,
              skipped = static_cast<int>(t.block_y()) % blocks * kHeads, first_head = kv_head * a_kv_head + skipped,
              visible = a.visible_R[row];
    return {row,
            visible,
            first_key(a, visible),
            kv_head,
            first_head,
            a_kv_head - skipped < kHeads ? a_kv_head - skipped : kHeads,
            a.page_table + a.sequence_R[row] * a.table_stride,
            a.q + row * a.q_stride + static_cast<std::int64_t>(first_head) * kE};
  }

  // The warp's page `part` of a chunk; from chunk `end` on there is none.
  template <typename Thread>
  MAGISTER_DEVICE Page page_of(Thread& t, const Place& place, int chunk, int part, int end) const {
    const int index = chunk * kChunkPages + part * kWarps + t.warp(), begin = index * kPageSlots;
    Page page;
    if (chunk >= end || place.first >= begin + kPageSlots || place.visible <= begin) return page;
    page.low = place.first > begin ? place.first - begin : 0;
    page.high = place.visible - begin < kPageSlots ? place.visible - begin : kPageSlots;
    page.row = (static_cast<std::int64_t>(place.table[index]) * a.K + place.kv_head) * kPageSlots;
    return page;
  }

  // Writes the warp's sums to shared memory.
  template <typename Thread>
  MAGISTER_DEVICE static void leave(Thread& t, const Place& place, const PageSums& sums, float* left) {
    const int g = t.lane() / 4, p = t.lane() % 4;
    MAGISTER_UNROLL
    for (int i = 0; i < 2 * kTiles; ++i) {
      const int n = i / 2, e = i % 2, head = n * 8 + 2 * p + e;
      if (head >= place.heads) continue;
      if (g == 0) {
        left[2 * head] = sums.best[n][e];
        left[2 * head + 1] = sums.total[n][e];
      }
      float* const to = left + 2 * kHeads + head * kLeftPitch + g * 8;
      MAGISTER_UNROLL
      for (int part = 0; part < Pages::kValueParts; ++part) {
        if (part * 64 + g * 8 >= kV) continue;
        float numbers[8];
        MAGISTER_UNROLL
        for (int j = 0; j < 8; ++j) numbers[j] = sums.numbers[part][j / 2][n][j % 2 * 2 + e];
        keep_8(to + part * 64, numbers);
      }
    }
  }

  template <typename Thread>
  MAGISTER_DEVICE static int column_of(Thread& t, int vector) {
    return (vector * kLanesAHead + t.thread() % kLanesAHead) * 8;
  }

  // Adds what the warps have left, in the order of the pages that they began with: to the row's sums, or to memory as
  // the sums of this chunk.
  template <typename Thread>
  MAGISTER_DEVICE void gather(Thread& t, const Place& place, int chunk, bool is_whole, HeadSums& sums) const {
    const int head = t.thread() / kLanesAHead;
    HeadSums of_chunk;
    for (int warp = 0; warp < kWarps; ++warp) {
      const auto* const left = reinterpret_cast<const float*>(t.shared() + warp * kPageBytes + Pages::kKeyBytes);
      if (left[2 * head] == -INFINITY) continue;  // no key of this warp is visible
      const auto factors = of_chunk.begin_adding(left[2 * head], left[2 * head + 1]);
      MAGISTER_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        if (column_of(t, v) >= kV) continue;
        float numbers[8];
        load_8(left + 2 * kHeads + head * kLeftPitch + column_of(t, v), numbers);
        of_chunk.add(factors, v, numbers);
      }
    }
    if (is_whole) {
      const auto factors = sums.begin_adding(of_chunk.best, of_chunk.total);
      MAGISTER_UNROLL
      for (int v = 0; v < kVectors; ++v) sums.add(factors, v, of_chunk.numbers[v]);
      return;
    }
    const std::int64_t partial = (static_cast<std::int64_t>(place.row) * a.H + place.first_head + head) * a.C + chunk;
    if (t.thread() % kLanesAHead == 0) {
      a.partial_RHC2[2 * partial] = of_chunk.best;
      a.partial_RHC2[2 * partial + 1] = of_chunk.total;
    }
    MAGISTER_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      if (column_of(t, v) < kV) store_8(a.partial_RHCV + partial * kV + column_of(t, v), of_chunk.numbers[v]);
    }
  }

  template <typename Thread>
  MAGISTER_DEVICE void finish(Thread& t, const Place& place, const HeadSums& sums) const {
    Bf16* const out =
        a.out + place.row * a.out_stride + static_cast<std::int64_t>(place.first_head + t.thread() / kLanesAHead) * kV;
    MAGISTER_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      if (column_of(t, v) < kV) sums.write(out + column_of(t, v), v, place.visible > 0);
    }
  }
};

}  // namespace magister::gpu
