// Attention of single queries over the pages of a cache (decoding) on the tensor cores, for bf16 and query heads in
// groups. A block computes the queries of one KV head, eight or sixteen as a tile, over one chunk after the other. A
// page of a chunk belongs to one warp, which copies its own keys and values past the registers, so warps do not wait
// for each other inside a chunk. Shares are split into two bf16 numbers, which keep 16 bits of them.
// A chunk's sums are made from its own keys alone, and chunks are added in ascending order by the same operations in a
// block and in FoldChunks. So the bits of a row depend neither on its neighbours nor on the chunks of a block.
// Sources: flash decoding (Dao et al., 2023); grouped-query attention, arXiv 2305.13245; the PTX ISA's fragments of
// mma.m16n8k16. Legend: as in attention_kernels.h.
#pragma once

#include "magister/device/numbers_at_once.h"
#include "model/gpu/attention_arguments.h"
#include "model/gpu/code_registers.h"

namespace magister::gpu {

// Chunks [begin, end) whose keys a row sees.
struct RowChunks {
  int begin, end;
  MAGISTER_DEVICE RowChunks(int visible, int first)
      : begin(first / kAttentionChunk), end((visible + kAttentionChunk - 1) / kAttentionChunk) {}
  // True if a block of `span` chunks computes the whole row, and so its output.
  MAGISTER_DEVICE bool in_one_block(int span) const { return end == 0 || begin / span == (end - 1) / span; }
};

// Sums over keys: the maximum of their scores, exponentials of scores less it, and eight numbers of the values times
// these, kVectors times.
template <int kVectors>
struct KeySums {
  float best = -INFINITY, total = 0, numbers[kVectors][8] = {};

  // Adds sums over later keys: begin_adding(), then each of their vectors.
  struct Factors {
    float own, other;
  };
  MAGISTER_DEVICE Factors begin_adding(float other_best, float other_total) {
    const float most = fmaxf(best, other_best);
    const Factors factors{expf(best - most), expf(other_best - most)};
    total = fmaf(factors.other, other_total, factors.own * total);
    best = most;
    return factors;
  }
  MAGISTER_DEVICE void add(const Factors& factors, int vector, const float (&others)[8]) {
    MAGISTER_UNROLL
    for (int i = 0; i < 8; ++i) numbers[vector][i] = fmaf(factors.other, others[i], factors.own * numbers[vector][i]);
  }
  // A sink is a score without a value.
  MAGISTER_DEVICE void begin_with_sink(float sink) {
    best = sink;
    total = 1;
  }
  MAGISTER_DEVICE void write(Bf16* out, int vector, bool has_keys) const {
    float quotients[8];
    MAGISTER_UNROLL
    for (int i = 0; i < 8; ++i) quotients[i] = has_keys ? numbers[vector][i] / total : 0.0f;
    store_8(out, quotients);
  }
};

// Bytes of a row of keys or values in shared memory: whole groups of eight pieces of 16 bytes.
template <int kNumbers>
constexpr int kStagedPitch = (2 * kNumbers + 127) / 128 * 128;

// kE, kV: E and V, multiples of 16. kTiles: groups of eight query heads in a block.
template <int kE, int kV, int kTiles>
struct GroupedAttention {
  static constexpr const char* kName = "grouped_attention";
  static constexpr int kKeyPitch = kStagedPitch<kE>, kValuePitch = kStagedPitch<kV>;
  static constexpr int kKeyBytes = kPageSlots * kKeyPitch, kValueBytes = kPageSlots * kValuePitch,
                       kPageBytes = kKeyBytes + kValueBytes;
  static constexpr int kChunkPages = kAttentionChunk / kPageSlots;
  // At most 96 KB: compute capability 8.6 has 99.
  static constexpr int kWarps = kChunkPages * kPageBytes <= 96 << 10 ? kChunkPages : kChunkPages / 2;
  static constexpr int kPagesAWarp = kChunkPages / kWarps;
  static constexpr int kMaxThreads = kWarps * kWarp;
  static constexpr int kMinBlocks = kWarps * kPageBytes > 48 << 10 ? 2 : 3;
  static constexpr int kHeads = 8 * kTiles;
  static constexpr int kKeySteps = (kE + 31) / 32, kKeyTiles = kPageSlots / 16, kValueParts = (kV + 63) / 64;
  // A warp leaves its sums where its values were: maxima and totals, then [head][kLeftPitch].
  static constexpr int kLeftPitch = kV + 4;
  static_assert(4 * (2 * kHeads + kHeads * kLeftPitch) <= kValueBytes);
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
    unsigned char *const keys = t.shared() + t.warp() * kPageBytes, *const values = keys + kKeyBytes;
    clear_ends_of_keys(t, keys);
    Page page = page_of(t, place, chunk, 0, end);
    copy_rows<kE>(t, a.key_pages, page, keys);
    copy_rows<kV>(t, a.value_pages, page, values);
    const int head = t.thread() / kLanesAHead;
    HeadSums sums;
    if (a.sinks_H != nullptr && head < place.heads) sums.begin_with_sink(a.sinks_H[place.first_head + head]);
    for (; chunk < end; ++chunk) {
      PageSums of_warp;
      MAGISTER_UNROLL
      for (int i = 0; i < kPagesAWarp; ++i) {
        const bool is_last = i + 1 == kPagesAWarp;
        const Page next = page_of(t, place, chunk + (is_last ? 1 : 0), is_last ? 0 : i + 1, end);
        Scores scores;
        t.template wait_for_copies<1>();
        t.sync_warp();
        if (page.is_seen()) score(t, place, keys, scores);
        t.sync_warp();
        copy_rows<kE>(t, a.key_pages, next, keys);
        if (page.is_seen()) exponentials(t, page, scores, of_warp);
        t.template wait_for_copies<1>();
        t.sync_warp();
        if (page.is_seen()) add_values(t, values, scores, of_warp);
        t.sync_warp();
        if (!is_last) copy_rows<kV>(t, a.value_pages, next, values);
        page = next;
      }
      leave(t, place, of_warp, reinterpret_cast<float*>(values));
      t.sync();
      if (head < place.heads) gather(t, place, chunk, is_whole, sums);
      t.sync();
      copy_rows<kV>(t, a.value_pages, page, values);
    }
    if (is_whole && head < place.heads) finish(t, place, sums);
  }

 private:
  struct Place {
    int row, visible, first, kv_head, first_head, heads;
    const std::int32_t* table;
  };
  // Slots [low, high) of a page that a row sees, and its first row among keys and values.
  struct Page {
    int low = 0, high = 0;
    std::int64_t row = 0;
    MAGISTER_DEVICE bool is_seen() const { return low < high; }
  };
  // Keys g and g + 8 of a tile for query heads 2p and 2p + 1: [key tile][head tile][2 * half + head].
  struct Scores {
    float of[kKeyTiles][kTiles][4];
  };
  // Sums over the keys of a warp for heads 2p and 2p + 1 of a tile.
  struct PageSums {
    float best[kTiles][2], total[kTiles][2], numbers[kValueParts][4][kTiles][4] = {};
    MAGISTER_DEVICE PageSums() {
      MAGISTER_UNROLL
      for (int i = 0; i < 2 * kTiles; ++i) {
        best[i / 2][i % 2] = -INFINITY;
        total[i / 2][i % 2] = 0;
      }
    }
  };

  template <typename Thread>
  MAGISTER_DEVICE Place place_of(Thread& t) const {
    const int row = static_cast<int>(t.block_x()), a_kv_head = a.H / a.K, blocks = (a_kv_head + kHeads - 1) / kHeads,
              kv_head = static_cast<int>(t.block_y()) / blocks,
              skipped = static_cast<int>(t.block_y()) % blocks * kHeads, visible = a.visible_R[row];
    return {row,
            visible,
            first_key(a, visible),
            kv_head,
            kv_head * a_kv_head + skipped,
            a_kv_head - skipped < kHeads ? a_kv_head - skipped : kHeads,
            a.page_table + a.sequence_R[row] * a.table_stride};
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

  // Offset of 16 bytes of a row in shared memory. Pieces are permuted so that eight lanes which read at the same time
  // use different banks: four pieces of two neighbouring rows in score(), two pieces of every second row in
  // add_values().
  MAGISTER_DEVICE static int staged(int row, int piece, int pitch) {
    return row * pitch + (piece ^ ((row & 6) ^ ((row & 1) * 4))) * 16;
  }

  // Queues the copies of a page as one group; slots that the row does not see become zeros.
  template <int kNumbers, typename Thread>
  MAGISTER_DEVICE static void copy_rows(Thread& t, const Bf16* pages, const Page& page, unsigned char* to) {
    constexpr int kPieces = kNumbers / 8;
    static_assert(kPageSlots * kPieces % kWarp == 0);
    if (page.is_seen()) {
      const Bf16* const from = pages + page.row * kNumbers + t.lane() * 8;
      MAGISTER_UNROLL
      for (int i = 0; i < kPageSlots * kPieces / kWarp; ++i) {
        const int index = i * kWarp + t.lane(), row = index / kPieces;
        t.copy_16(to + staged(row, index % kPieces, kStagedPitch<kNumbers>), from + i * kWarp * 8,
                  row >= page.low && row < page.high);
      }
    }
    t.end_copies();
  }

  // Pieces after E that score() reads; nothing else writes them.
  template <typename Thread>
  MAGISTER_DEVICE static void clear_ends_of_keys(Thread& t, unsigned char* keys) {
    constexpr int kPieces = kE / 8;
    if constexpr (kPieces < 4 * kKeySteps) {
      for (int row = t.lane(); row < kPageSlots; row += kWarp) {
        for (int piece = kPieces; piece < 4 * kKeySteps; ++piece)
          *reinterpret_cast<Words4*>(keys + staged(row, piece, kKeyPitch)) = Words4{};
      }
    }
  }

  // Keys on the left side, queries on the right side. Inputs are numbered so that a lane's 16 bytes are its part of two
  // products. Queries are read again for each page: they are in the L1 cache, and would take 16 to 32 registers. The
  // numbers of heads that are not there are those of the last one, and are not used.
  template <typename Thread>
  MAGISTER_DEVICE void score(Thread& t, const Place& place, const unsigned char* keys, Scores& scores) const {
    const int g = t.lane() / 4, p = t.lane() % 4;
    scores = {};
    MAGISTER_UNROLL
    for (int step = 0; step < kKeySteps; ++step) {
      const int piece = step * 4 + p, e = piece * 8 < kE ? piece * 8 : kE - 8;
      Words4 right[kTiles], low[kKeyTiles], high[kKeyTiles];
      MAGISTER_UNROLL
      for (int n = 0; n < kTiles; ++n) {
        const std::int64_t head = n * 8 + g < place.heads ? n * 8 + g : place.heads - 1;
        right[n] = load_16(a.q + place.row * a.q_stride + (place.first_head + head) * kE + e);
      }
      MAGISTER_UNROLL
      for (int tile = 0; tile < kKeyTiles; ++tile) {
        low[tile] = load_16(keys + staged(tile * 16 + g, piece, kKeyPitch));
        high[tile] = load_16(keys + staged(tile * 16 + 8 + g, piece, kKeyPitch));
      }
      MAGISTER_UNROLL
      for (int i = 0; i < 2 * kTiles * kKeyTiles; ++i) {  // products of the same sums are far apart
        const int two = i / (kTiles * kKeyTiles) * 2, n = i / kKeyTiles % kTiles, tile = i % kKeyTiles;
        t.mma_bf16(scores.of[tile][n],
                   {low[tile].word[two], high[tile].word[two], low[tile].word[two + 1], high[tile].word[two + 1]},
                   {right[n].word[two], right[n].word[two + 1]});
      }
    }
    MAGISTER_UNROLL
    for (int i = 0; i < kKeyTiles * kTiles * 4; ++i) scores.of[i / (4 * kTiles)][i / 4 % kTiles][i % 4] *= a.scale;
    if (a.softcap > 0) cap(scores);
  }

  // tanh(x) = 1 - 2 / (exp(2x) + 1), with an absolute error of about 1e-7.
  MAGISTER_DEVICE void cap(Scores& scores) const {
    MAGISTER_UNROLL
    for (int i = 0; i < kKeyTiles * kTiles * 4; ++i) {
      float& score = scores.of[i / (4 * kTiles)][i / 4 % kTiles][i % 4];
      score = a.softcap * (1 - divide_roughly(2.0f, expf(2 * divide_roughly(score, a.softcap)) + 1));
    }
  }

  // Replaces scores by exp(score - maximum of the warp's keys so far), and zeros where the row sees no key.
  template <typename Thread>
  MAGISTER_DEVICE static void exponentials(Thread& t, const Page& page, Scores& scores, PageSums& sums) {
    const int g = t.lane() / 4;
    MAGISTER_UNROLL
    for (int i = 0; i < 2 * kTiles; ++i) {
      const int n = i / 2, e = i % 2;
      float most = sums.best[n][e];
      MAGISTER_UNROLL
      for (int j = 0; j < 2 * kKeyTiles; ++j) {
        const int key = j * 8 + g;
        float& score = scores.of[j / 2][n][j % 2 * 2 + e];
        if (key < page.low || key >= page.high) score = -INFINITY;
        most = fmaxf(most, score);
      }
      MAGISTER_UNROLL
      for (int mask = 4; mask < kWarp; mask *= 2) most = fmaxf(most, t.shuffle_xor(most, mask));
      float added = 0;
      MAGISTER_UNROLL
      for (int j = 0; j < 2 * kKeyTiles; ++j) {
        float& score = scores.of[j / 2][n][j % 2 * 2 + e];
        score = expf(score - most);
        added += score;
      }
      MAGISTER_UNROLL
      for (int mask = 4; mask < kWarp; mask *= 2) added += t.shuffle_xor(added, mask);
      if constexpr (kPagesAWarp > 1) {
        const float factor = expf(sums.best[n][e] - most);
        added = fmaf(sums.total[n][e], factor, added);
        MAGISTER_UNROLL
        for (int j = 0; j < kValueParts * 8; ++j) sums.numbers[j / 8][j / 2 % 4][n][j % 2 * 2 + e] *= factor;
      }
      sums.best[n][e] = most;
      sums.total[n][e] = added;
    }
  }

  // From the lane that has heads (2p, 2p + 1) of key g to the lane that needs keys (2p, 2p + 1) of head g.
  template <typename Thread>
  MAGISTER_DEVICE static std::uint32_t transposed(Thread& t, std::uint32_t heads_of_key) {
    const int g = t.lane() / 4, p = t.lane() % 4, from = p * 8 + g / 2;
    const std::uint32_t first = t.shuffle(heads_of_key, from), second = t.shuffle(heads_of_key, from + 4);
    return g % 2 == 0 ? lower_halves(first, second) : upper_halves(first, second);
  }

  // Adds the values of a page, weighted. The left side's rows are numbers of the values: row g of product j is number
  // 8g + 2j of a part and row g + 8 the next one, so that a lane's 16 bytes of a key are its part of four products.
  template <typename Thread>
  MAGISTER_DEVICE static void add_values(Thread& t, const unsigned char* values, const Scores& scores, PageSums& sums) {
    const int g = t.lane() / 4, p = t.lane() % 4;
    MAGISTER_UNROLL
    for (int tile = 0; tile < kKeyTiles; ++tile) {
      std::uint32_t upper[kTiles][2], lower[kTiles][2];
      MAGISTER_UNROLL
      for (int i = 0; i < 2 * kTiles; ++i) {
        const float first = scores.of[tile][i / 2][i % 2 * 2], second = scores.of[tile][i / 2][i % 2 * 2 + 1];
        const std::uint32_t shares = pack_bf16(first, second);
        upper[i / 2][i % 2] = transposed(t, shares);
        lower[i / 2][i % 2] =
            transposed(t, pack_bf16(first - bits_as_float(shares << 16), second - bits_as_float(shares & 0xffff0000u)));
      }
      MAGISTER_UNROLL
      for (int part = 0; part < kValueParts; ++part) {
        const int row = tile * 16 + 2 * p, piece = part * 8 + g;
        const Words4 keys[4] = {load_16(values + staged(row, piece, kValuePitch)),
                                load_16(values + staged(row + 1, piece, kValuePitch)),
                                load_16(values + staged(row + 8, piece, kValuePitch)),
                                load_16(values + staged(row + 9, piece, kValuePitch))};
        std::uint32_t left[4][4];
        MAGISTER_UNROLL
        for (int i = 0; i < 16; ++i) {
          const std::uint32_t first = keys[i % 4 / 2 * 2].word[i / 4], second = keys[i % 4 / 2 * 2 + 1].word[i / 4];
          left[i / 4][i % 4] = i % 2 == 0 ? lower_halves(first, second) : upper_halves(first, second);
        }
        MAGISTER_UNROLL
        for (int i = 0; i < 8 * kTiles; ++i) {
          const int n = i / 4 % kTiles, j = i % 4;
          t.mma_bf16(sums.numbers[part][j][n], left[j], i < 4 * kTiles ? upper[n] : lower[n]);
        }
      }
    }
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
      for (int part = 0; part < kValueParts; ++part) {
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
      const auto* const left = reinterpret_cast<const float*>(t.shared() + warp * kPageBytes + kKeyBytes);
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

// Adds the chunks of a row and head in ascending order, after its sink, unless one block has computed the row. V is a
// multiple of 8; a thread has eight numbers of a head.
struct FoldChunks {
  static constexpr const char* kName = "fold_chunks";
  static constexpr int kMaxThreads = 128;
  static constexpr int kAtOnce = 4;  // chunks whose loads are in flight
  AttentionArguments<Bf16> a;
  int span;  // chunks of a block of GroupedAttention

  LaunchShape shape() const {
    return {.blocks_x = static_cast<unsigned>(a.R),
            .blocks_y = static_cast<unsigned>((a.H * (a.V / 8) + kMaxThreads - 1) / kMaxThreads),
            .threads = kMaxThreads};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    const int row = static_cast<int>(t.block_x()), visible = a.visible_R[row], vectors = a.V / 8,
              index = static_cast<int>(t.block_y()) * kMaxThreads + t.thread(), head = index / vectors,
              column = index % vectors * 8;
    const RowChunks seen(visible, first_key(a, visible));
    if (head >= a.H || seen.in_one_block(span)) return;
    const std::int64_t row_head = static_cast<std::int64_t>(row) * a.H + head;
    const float* const stats = a.partial_RHC2 + row_head * a.C * 2;
    const float* const numbers = a.partial_RHCV + row_head * a.C * a.V + column;
    KeySums<1> sums;
    if (a.sinks_H != nullptr) sums.begin_with_sink(a.sinks_H[head]);
    for (int first = seen.begin; first < seen.end; first += kAtOnce) {
      float of_chunks[kAtOnce][8], best[kAtOnce], total[kAtOnce];
      MAGISTER_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const std::int64_t chunk = first + i < seen.end ? first + i : seen.end - 1;
        best[i] = stats[2 * chunk];
        total[i] = stats[2 * chunk + 1];
        load_8(numbers + chunk * a.V, of_chunks[i]);
      }
      MAGISTER_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i >= seen.end) break;
        sums.add(sums.begin_adding(best[i], total[i]), 0, of_chunks[i]);
      }
    }
    sums.write(a.out + row * a.out_stride + static_cast<std::int64_t>(head) * a.V + column, 0, true);
  }
};

}  // namespace magister::gpu
