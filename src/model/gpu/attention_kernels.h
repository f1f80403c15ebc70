// Attention of single queries over the pages of a cache (decoding). Every key and value is read once for all heads that
// share it. Keys are cut into chunks, counted from the sequence's first key, with one block per chunk. The chunks are
// added in ascending order, so the bits of a row depend only on its own sequence. Source: flash decoding (Dao et al.,
// 2023), the online softmax over chunks.
// Legend: R query rows, H query heads, K KV heads, E head_dim, V numbers of a head's values, S sequences, P pages of 48
// tokens, C chunks of 192 keys.
#pragma once

#include "model/gpu/attention_arguments.h"
#include "model/gpu/page_numbers.h"

namespace magister::gpu {

// Sums kValues numbers over kLanes lanes. While there are several numbers, a lane sends one half and keeps the other:
// 16 numbers of 16 lanes cost 15 shuffles instead of 64. Returns the number of sums in this lane: values[i] is then sum
// `index` + i.
template <int kValues, int kLanes, typename Thread>
MAGISTER_DEVICE int spread_sums(Thread& t, float* values, int& index) {
  if constexpr (kLanes == 1) {
    return kValues;
  } else if constexpr (kValues == 1) {
    values[0] += t.shuffle_xor(values[0], kLanes / 2);
    return spread_sums<1, kLanes / 2>(t, values, index);
  } else {
    constexpr int kHalf = kValues / 2;
    const bool upper = (t.lane() & (kLanes / 2)) != 0;
    MAGISTER_UNROLL
    for (int i = 0; i < kHalf; ++i) {
      const float sent = upper ? values[i] : values[i + kHalf], kept = upper ? values[i + kHalf] : values[i];
      values[i] = kept + t.shuffle_xor(sent, kLanes / 2);
    }
    index += upper ? kHalf : 0;
    return spread_sums<kHalf, kLanes / 2>(t, values, index);
  }
}

// One chunk of one row, for kHeads of a KV head's query heads. kLanes lanes share a key, with eight numbers each, so a
// block of 256 threads processes kTeams keys at a time. Each lane has kAtOnce loads in flight: 2 KB of bf16 per warp.
// kWhole: E and V are multiples of 8. kWide: heads of more than kPart numbers are processed in parts of that. P: the
// type of numbers in the pages, A or E4m3; with E4m3 the arguments' pages are records of codes (kv_code_kernels.h), and
// kWhole is true.
template <typename A, int kLanes, int kHeads, bool kWhole = true, bool kWide = false, typename P = A>
struct PagedAttention {
  static constexpr bool kCodes = sizeof(P) == 1;
  static constexpr const char* kName = kCodes ? "paged_attention_of_codes" : "paged_attention";
  static constexpr int kMaxThreads = 256;
  static constexpr int kWarps = kMaxThreads / kWarp;
  static constexpr int kMinBlocks = kHeads == 8 || kWide ? 2 : 3;
  static constexpr int kTeams = kMaxThreads / kLanes;
  static constexpr int kAtOnce = sizeof(A) == 2 ? 4 : 2;
  static constexpr int kPart = 8 * kLanes;
  static constexpr int kSame = kLanes > kAtOnce* kHeads ? kLanes / (kAtOnce * kHeads) : 1;
  AttentionArguments<A> a;

  int head_blocks() const { return (a.H / a.K + kHeads - 1) / kHeads; }
  LaunchShape shape() const {
    const int of_scores = kAttentionChunk * kHeads, of_sums = kWarps * kHeads * (kWide ? kPart : a.V);
    const int numbers = kWide ? of_scores + of_sums : of_scores > of_sums ? of_scores : of_sums;
    return {.blocks_x = static_cast<unsigned>(a.R),
            .blocks_y = static_cast<unsigned>(a.K * head_blocks()),
            .blocks_z = static_cast<unsigned>(a.C),
            .threads = kMaxThreads,
            .shared_bytes = sizeof(float) * static_cast<std::size_t>(numbers)};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    const int row = static_cast<int>(t.block_x()), chunk = static_cast<int>(t.block_z());
    const int visible = a.visible_R[row];
    const ChunkKeys keys(chunk, visible, first_key(a, visible));
    if (keys.low >= keys.high) return;
    const int a_kv_head = a.H / a.K, blocks = (a_kv_head + kHeads - 1) / kHeads;
    const int kv_head = static_cast<int>(t.block_y()) / blocks,
              skipped = static_cast<int>(t.block_y()) % blocks * kHeads;
    const Place place{row,
                      chunk,
                      kv_head,
                      kv_head * a_kv_head + skipped,
                      a_kv_head - skipped < kHeads ? a_kv_head - skipped : kHeads,
                      a.page_table + a.sequence_R[row] * a.table_stride};
    auto* shared = reinterpret_cast<float*>(t.shared());
    score(t, place, keys, 0, shared);
    if constexpr (kWide) {
      for (int part = kPart; part < a.E; part += kPart) score(t, place, keys, part, shared);
    }
    t.sync();
    exponentials(t, place, keys, shared);
    t.sync();
    add_values(t, place, keys, 0, shared);
    if constexpr (kWide) {
      for (int part = kPart; part < a.V; part += kPart) add_values(t, place, keys, part, shared);
    }
  }

 private:
  struct Place {
    int row, chunk, kv_head, first_head, heads;
    const std::int32_t* table;
  };

  // Indices beyond the row or the chunk are clamped to the last valid one. This needs no branch, and the results are
  // not used.
  MAGISTER_DEVICE Run8<P> run_of(const A* pages, int size, const Place& place, const ChunkKeys& keys, int key,
                                 int e) const {
    if (key >= keys.high) key = keys.high - 1;
    const std::int64_t head = static_cast<std::int64_t>(place.table[key / kPageSlots]) * a.K + place.kv_head;
    const int slot = key % kPageSlots;
    Run8<P> run;
    if constexpr (kCodes) {
      const std::uint8_t* record = reinterpret_cast<const std::uint8_t*>(pages) + head * CodeVector::record_bytes(size);
      run.load(CodeVector::of(record, size, slot), e < size ? e : size - 8);
    } else if constexpr (kWhole) {
      run.load(pages + (head * kPageSlots + slot) * size, e < size ? e : size - 8);
    } else {
      run.load(pages + (head * kPageSlots + slot) * size, e, size);
    }
    return run;
  }
  MAGISTER_DEVICE std::int64_t partial(const Place& place, int head) const {
    return (static_cast<std::int64_t>(place.row) * a.H + place.first_head + head) * a.C + place.chunk;
  }

  // Writes scores[key in the chunk][head]: the products of the numbers of a head from `part` on. The same thread adds
  // those of later parts. Where more lanes than numbers share a key, several have the same sum.
  template <typename Thread>
  MAGISTER_DEVICE void score(Thread& t, const Place& place, const ChunkKeys& keys, int part, float* scores) const {
    const int team = t.thread() / kLanes, e = part + t.lane() % kLanes * 8;
    float q[kHeads][8];
    MAGISTER_UNROLL
    for (int h = 0; h < kHeads; ++h) {
      const std::int64_t head = place.first_head + h;
      MAGISTER_UNROLL
      for (int i = 0; i < 8; ++i) {
        q[h][i] = h < place.heads && e + i < a.E ? to_float(a.q[place.row * a.q_stride + head * a.E + e + i]) : 0.0f;
      }
    }
    for (int first = keys.low; first < keys.high; first += kTeams * kAtOnce) {
      Run8<P> rows[kAtOnce];
      MAGISTER_UNROLL
      for (int i = 0; i < kAtOnce; ++i) rows[i] = run_of(a.key_pages, a.E, place, keys, first + i * kTeams + team, e);
      float sums[kAtOnce * kHeads];
      MAGISTER_UNROLL
      for (int i = 0; i < kAtOnce * kHeads; ++i) {
        sums[i] = 0;
        MAGISTER_UNROLL
        for (int j = 0; j < 8; ++j) sums[i] = fmaf(q[i % kHeads][j], rows[i / kHeads][j], sums[i]);
        sums[i] = rows[i / kHeads].scaled(sums[i]);
      }
      int index = 0;
      const int count = spread_sums<kAtOnce * kHeads, kLanes>(t, sums, index);
      MAGISTER_UNROLL
      for (int i = 0; i < kAtOnce * kHeads; ++i) {
        if (i >= count) break;
        const int key = first + (index + i) / kHeads * kTeams + team;
        if (key >= keys.high || (kWide && t.lane() % kSame != 0)) continue;
        float& score = scores[(key - place.chunk * kAttentionChunk) * kHeads + (index + i) % kHeads];
        score = kWide && part > 0 ? score + sums[i] * a.scale : sums[i] * a.scale;
      }
    }
  }

  // Applies softcap and ALiBi, if the model has them, and replaces scores by exp(score - maximum); one warp per head.
  template <typename Thread>
  MAGISTER_DEVICE void exponentials(Thread& t, const Place& place, const ChunkKeys& keys, float* scores) const {
    const int begin = place.chunk * kAttentionChunk;
    for (int h = t.warp(); h < kHeads; h += kWarps) {
      if (a.softcap > 0) {
        for (int key = keys.low + t.lane(); key < keys.high; key += kWarp) {
          float& score = scores[(key - begin) * kHeads + h];
          score = a.softcap * tanhf(score / a.softcap);
        }
      }
      if (a.alibi_H != nullptr && h < place.heads) {
        const float slope = a.alibi_H[place.first_head + h];
        const int query = a.visible_R[place.row] - 1;
        for (int key = keys.low + t.lane(); key < keys.high; key += kWarp)
          scores[(key - begin) * kHeads + h] += alibi_term(slope, key, query, a.alibi_in_bf16 ? a.scale : 0.0f);
      }
      float maximum = -INFINITY, sum = 0;
      for (int key = keys.low + t.lane(); key < keys.high; key += kWarp)
        maximum = fmaxf(maximum, scores[(key - begin) * kHeads + h]);
      maximum = warp_max(t, maximum);
      for (int key = keys.low + t.lane(); key < keys.high; key += kWarp) {
        float& score = scores[(key - begin) * kHeads + h];
        score = expf(score - maximum);
        sum += score;
      }
      sum = warp_sum(t, sum);
      if (t.lane() == 0 && h < place.heads) {
        a.partial_RHC2[2 * partial(place, h)] = maximum;
        a.partial_RHC2[2 * partial(place, h) + 1] = sum;
      }
    }
  }

  // The numbers of all heads for one key, four per load.
  MAGISTER_DEVICE static void key_weights(const float* shared, float (&weights)[kHeads]) {
    if constexpr (kHeads == 1) {
      weights[0] = shared[0];
    } else {
      MAGISTER_UNROLL
      for (int h = 0; h < kHeads; h += 4) {
        const Words4 four = load_16(shared + h);
        MAGISTER_UNROLL
        for (int i = 0; i < 4; ++i) weights[h + i] = bits_as_float(four.word[i]);
      }
    }
  }

  // Sums of the numbers of values from `part` on.
  template <typename Thread>
  MAGISTER_DEVICE void add_values(Thread& t, const Place& place, const ChunkKeys& keys, int part, float* shared) const {
    const int team = t.thread() / kLanes, e = part + t.lane() % kLanes * 8;
    float sums[kHeads][8] = {};
    for (int first = keys.low + team; first < keys.high; first += kTeams * kAtOnce) {
      Run8<P> rows[kAtOnce];
      MAGISTER_UNROLL
      for (int i = 0; i < kAtOnce; ++i) rows[i] = run_of(a.value_pages, a.V, place, keys, first + i * kTeams, e);
      MAGISTER_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const int key = first + i * kTeams;
        if (key >= keys.high) break;
        float weights[kHeads];
        key_weights(shared + (key - place.chunk * kAttentionChunk) * kHeads, weights);
        MAGISTER_UNROLL
        for (int h = 0; h < kHeads; ++h) {
          weights[h] = rows[i].scaled(weights[h]);
          MAGISTER_UNROLL
          for (int j = 0; j < 8; ++j) sums[h][j] = fmaf(weights[h], rows[i][j], sums[h][j]);
        }
      }
    }
    // [warp][head][numbers of a part]: unless further parts need the scores, their memory is used.
    float* of_warps = kWide ? shared + kAttentionChunk * kHeads : shared;
    const int size = kWide ? kPart : a.V;
    t.sync();
    MAGISTER_UNROLL
    for (int i = 0; i < kHeads * 8; ++i) {
      float& sum = sums[i / 8][i % 8];
      MAGISTER_UNROLL
      for (int mask = kLanes; mask < kWarp; mask *= 2) sum += t.shuffle_xor(sum, mask);
      if (t.lane() < kLanes && e + i % 8 < a.V) of_warps[(t.warp() * kHeads + i / 8) * size + e - part + i % 8] = sum;
    }
    t.sync();
    for (int i = t.thread(); i < place.heads * size; i += kMaxThreads) {
      if (kWide && part + i % size >= a.V) continue;
      float sum = 0;
      for (int warp = 0; warp < kWarps; ++warp) sum += of_warps[warp * kHeads * size + i];
      a.partial_RHCV[partial(place, i / size) * a.V + part + i % size] = sum;
    }
  }
};

// Combines the chunks of a row and head in ascending order, after its sink.
template <typename A>
struct CombineChunks {
  static constexpr const char* kName = "combine_chunks";
  static constexpr int kMaxThreads = 256;
  AttentionArguments<A> a;

  LaunchShape shape() const {
    const int threads = (a.V + 31) / 32 * 32;
    return {.blocks_x = static_cast<unsigned>(a.R),
            .blocks_y = static_cast<unsigned>(a.H),
            .threads = static_cast<unsigned>(threads < kMaxThreads ? threads : kMaxThreads)};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    const std::int64_t row = t.block_x(), head = row * a.H + t.block_y();
    const int visible = a.visible_R[row], end = (visible + kAttentionChunk - 1) / kAttentionChunk;
    const int begin = first_key(a, visible) / kAttentionChunk;
    const float* stats = a.partial_RHC2 + head * a.C * 2;
    const float sink = a.sinks_H != nullptr ? a.sinks_H[t.block_y()] : -INFINITY;
    float maximum = sink;
    for (int c = begin; c < end; ++c) maximum = fmaxf(maximum, stats[2 * c]);
    for (int v = t.thread(); v < a.V; v += t.num_threads()) {
      float sum = 0, weights = a.sinks_H != nullptr ? expf(sink - maximum) : 0.0f;
      for (int c = begin; c < end; ++c) {
        const float weight = expf(stats[2 * c] - maximum);
        sum = fmaf(weight, a.partial_RHCV[(head * a.C + c) * a.V + v], sum);
        weights = fmaf(weight, stats[2 * c + 1], weights);
      }
      a.out[row * a.out_stride + t.block_y() * a.V + v] = stored<A>(end > begin ? sum / weights : 0.0f);
    }
  }
};

}  // namespace magister::gpu
