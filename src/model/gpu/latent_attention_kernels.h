// Attention of single queries over the latents in the pages of a cache (decoding). Queries are in the space of latents,
// so all heads of a token's row meet one vector, and the result is a sum of latents for each head. A block computes 16
// heads of a row over one chunk of keys, 64 keys at a time: latents are copied to shared memory once for scores and
// sums, and the tensor cores multiply. Shares are split into two bf16 numbers, which keep 16 bits of them. Chunks are
// counted from the sequence's first key and depend on its own length alone, and are added in ascending order, so the
// bits of a row are its own.
// Sources: DeepSeek-V2, arXiv 2405.04434, section 2.1.2; the PTX ISA's fragments of mma.m16n8k16.
// Legend: R query rows, H heads of this shard, C rank of the latent, W its width with the rotated key, P pages of 48
// tokens, K chunks.
#pragma once

#include "model/gpu/code_registers.h"

namespace magister::gpu {

// Keys of a step, and of a chunk: partial sums of 16 heads are then 32 KB for 295 KB of latents at W = 576.
constexpr int kLatentStep = 64, kLatentChunk = 256;
// Longer rows have larger chunks, so that partial sums take memory for this number of chunks at most.
constexpr int kMostLatentChunks = 64;

// K for rows of up to this number of keys.
inline std::int64_t latent_chunks(std::int64_t keys) {
  const std::int64_t chunks = (keys + kLatentChunk - 1) / kLatentChunk;
  return chunks < kMostLatentChunks ? chunks : kMostLatentChunks;
}

struct LatentArguments {
  const Bf16* q_RHW;
  const Bf16* pages;               // [P, 1, 48, W]
  const std::int32_t* page_table;  // [S, table_stride]: key j is in page j / 48, slot j % 48
  const std::int32_t* sequence_R;  // row of page_table for each query row
  const std::int32_t* visible_R;   // number of keys that a row sees, including its own; 0: the result is zero
  Bf16* out_RHC;
  std::int64_t table_stride;
  float* partial_RHKC;  // scratch: weighted sums of latents, not yet divided
  float* partial_RHK2;  // scratch: maximum and sum of exponentials per chunk
  int R, H, C, W, K;    // K: at least the chunks of every row; a larger K only adds idle blocks
  float scale;
  // Where an indexer chooses keys: key j of a row is at places_Rk[row][j], page * 48 + slot, and there is no table.
  const std::int32_t* places_Rk = nullptr;
  std::int64_t k = 0;
};

// Keys of each chunk of a row.
MAGISTER_DEVICE int latent_chunk_keys(int visible) {
  const int chunks = (visible + kLatentChunk - 1) / kLatentChunk;
  return kLatentChunk * ((chunks + kMostLatentChunks - 1) / kMostLatentChunks);
}

// W and C are multiples of 8, C is at most kMostRank.
struct LatentAttention {
  static constexpr const char* kName = "latent_attention";
  static constexpr int kMaxThreads = 256;
  static constexpr int kMinBlocks = 2;
  static constexpr int kHeads = 16, kMostRank = 64 * kMaxThreads / kWarp;
  static constexpr int kScorePitch = kLatentStep + 4;
  LatentArguments a;

  // Bytes of a row in shared memory: whole groups of eight pieces of 16 bytes.
  static constexpr int pitch_of(int width) { return (2 * width + 127) / 128 * 128; }
  static constexpr std::size_t shared_bytes(int width) {
    return static_cast<std::size_t>(kHeads + kLatentStep) * static_cast<std::size_t>(pitch_of(width)) +
           sizeof(float) * (kHeads * kScorePitch + kHeads);
  }
  LaunchShape shape() const {
    return {.blocks_x = static_cast<unsigned>(a.R),
            .blocks_y = static_cast<unsigned>((a.H + kHeads - 1) / kHeads),
            .blocks_z = static_cast<unsigned>(a.K),
            .threads = kMaxThreads,
            .shared_bytes = shared_bytes(a.W)};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    const int row = static_cast<int>(t.block_x()), visible = a.visible_R[row], size = latent_chunk_keys(visible),
              low = static_cast<int>(t.block_z()) * size, high = low + size < visible ? low + size : visible;
    if (low >= high) return;
    const int first_head = static_cast<int>(t.block_y()) * kHeads, pitch = own_pitch();
    unsigned char *const q = t.shared(), *const latents = q + kHeads * pitch;
    auto* const scores = reinterpret_cast<float*>(latents + kLatentStep * pitch);
    float* const corrections = scores + kHeads * kScorePitch;
    copy_queries(t, row, first_head, pitch, q);
    float best = -INFINITY, sum = 0, sums[8][4] = {};
    for (int step = low; step < high; step += kLatentStep) {
      copy_latents(t, row, step, high, pitch, latents);
      t.end_copies();
      t.template wait_for_copies<0>();
      t.sync();
      score(t, q, latents, pitch, high - step, scores);
      t.sync();
      exponentials(t, scores, corrections, best, sum);
      t.sync();
      add_latents(t, latents, pitch, scores, corrections, sums);
      t.sync();
    }
    finish(t, row, first_head, best, sum, sums);
  }

 private:
  MAGISTER_DEVICE int own_pitch() const { return (2 * a.W + 127) / 128 * 128; }
  // Address of 16 bytes of a row in shared memory. Pieces are permuted so that eight lanes which read at the same time
  // use different banks: four pieces of two rows in score(), two pieces of four rows in add_latents().
  MAGISTER_DEVICE static int place(int row, int piece, int pitch) {
    return row * pitch + ((piece ^ ((row & 1) * 4 + (row & 2))) * 16);
  }

  template <typename Thread>
  MAGISTER_DEVICE void copy_queries(Thread& t, int row, int first_head, int pitch, unsigned char* q) const {
    const int pieces = pitch / 16;
    for (int i = t.thread(); i < kHeads * pieces; i += kMaxThreads) {
      const int head = first_head + i / pieces, piece = i % pieces;
      const bool there = head < a.H && piece * 8 < a.W;
      const std::int64_t from = (static_cast<std::int64_t>(row) * a.H + (there ? head : 0)) * a.W;
      t.copy_16(q + place(i / pieces, piece, pitch), a.q_RHW + from + (there ? piece * 8 : 0), there);
    }
  }

  // Keys beyond the chunk become zeros.
  template <typename Thread>
  MAGISTER_DEVICE void copy_latents(Thread& t, int row, int step, int high, int pitch, unsigned char* latents) const {
    constexpr int kSlots = 48;
    const bool chosen = a.places_Rk != nullptr;
    const std::int32_t* const keys =
        chosen ? a.places_Rk + row * a.k : a.page_table + a.sequence_R[row] * a.table_stride;
    const int pieces = pitch / 16;
    for (int i = t.thread(); i < kLatentStep * pieces; i += kMaxThreads) {
      const int key = step + i / pieces, piece = i % pieces;
      const bool there = key < high && piece * 8 < a.W;
      const std::int64_t slot = !there   ? 0
                                : chosen ? keys[key]
                                         : static_cast<std::int64_t>(keys[key / kSlots]) * kSlots + key % kSlots;
      t.copy_16(latents + place(i / pieces, piece, pitch), a.pages + slot * a.W + (there ? piece * 8 : 0), there);
    }
  }

  // Warp w computes keys [8w, 8w + 8) of the step for all heads, and writes scores[head][key]. Inputs are numbered so
  // that a lane's 16 bytes are its part of two products. count: keys of the step that are visible, or more.
  template <typename Thread>
  MAGISTER_DEVICE void score(Thread& t, const unsigned char* q, const unsigned char* latents, int pitch, int count,
                             float* scores) const {
    const int g = t.lane() / 4, p = t.lane() % 4, key = t.warp() * 8;
    float even[4] = {}, odd[4] = {};
    for (int piece = p; piece < pitch / 16; piece += 4) {
      const Words4 low = load_16(q + place(g, piece, pitch)), high = load_16(q + place(g + 8, piece, pitch)),
                   keys = load_16(latents + place(key + g, piece, pitch));
      const std::uint32_t left[2][4] = {{low.word[0], high.word[0], low.word[1], high.word[1]},
                                        {low.word[2], high.word[2], low.word[3], high.word[3]}},
                          right[2][2] = {{keys.word[0], keys.word[1]}, {keys.word[2], keys.word[3]}};
      t.mma_bf16(even, left[0], right[0]);
      t.mma_bf16(odd, left[1], right[1]);
    }
    MAGISTER_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int column = key + 2 * p + i % 2;
      scores[(g + i / 2 * 8) * kScorePitch + column] = column < count ? (even[i] + odd[i]) * a.scale : -INFINITY;
    }
  }

  // Replaces scores by exp(score - maximum so far). 16 lanes share a head, each with four keys; all of them hold its
  // maximum and sum.
  template <typename Thread>
  MAGISTER_DEVICE static void exponentials(Thread& t, float* scores, float* corrections, float& best, float& sum) {
    constexpr int kLanes = 16;
    const int head = t.thread() / kLanes;
    float* const own = scores + head * kScorePitch + t.thread() % kLanes * 4;
    const Words4 words = load_16(own);
    float values[4], most = best;
    MAGISTER_UNROLL
    for (int i = 0; i < 4; ++i) {
      values[i] = bits_as_float(words.word[i]);
      most = fmaxf(most, values[i]);
    }
    for (int mask = kLanes / 2; mask > 0; mask /= 2) most = fmaxf(most, t.shuffle_xor(most, mask));
    float added = 0;
    Words4 shares;
    MAGISTER_UNROLL
    for (int i = 0; i < 4; ++i) {
      values[i] = expf(values[i] - most);
      added += values[i];
      shares.word[i] = float_as_bits(values[i]);
    }
    for (int mask = kLanes / 2; mask > 0; mask /= 2) added += t.shuffle_xor(added, mask);
    *reinterpret_cast<Words4*>(own) = shares;
    const float correction = expf(best - most);
    if (t.thread() % kLanes == 0) corrections[head] = correction;
    sum = sum * correction + added;
    best = most;
  }

  // Warp w adds 64 numbers of the latents, from 64 w on. Column n of product j is number 8 n + j of these, so that a
  // lane's 16 bytes of a key are its part of eight products.
  template <typename Thread>
  MAGISTER_DEVICE void add_latents(Thread& t, const unsigned char* latents, int pitch, const float* shares,
                                   const float* corrections, float (&sums)[8][4]) const {
    if (t.warp() * 64 >= a.C) return;
    const int g = t.lane() / 4, p = t.lane() % 4, piece = t.warp() * 8 + g;
    const float corrected[2] = {corrections[g], corrections[g + 8]};
    MAGISTER_UNROLL
    for (int j = 0; j < 8; ++j) {
      MAGISTER_UNROLL
      for (int i = 0; i < 4; ++i) sums[j][i] *= corrected[i / 2];
    }
    for (int key = p; key < kLatentStep; key += 16) {
      Words4 words[4];
      MAGISTER_UNROLL
      for (int i = 0; i < 4; ++i) words[i] = load_16(latents + place(key + 4 * i, piece, pitch));
      std::uint32_t upper[4], lower[4];
      MAGISTER_UNROLL
      for (int i = 0; i < 4; ++i) {  // heads g and g + 8 of keys (0, 4), then of keys (8, 12)
        const float* two = shares + (g + i % 2 * 8) * kScorePitch + key + i / 2 * 8;
        const float first = two[0], second = two[4];
        upper[i] = pack_bf16(first, second);
        lower[i] = pack_bf16(first - bits_as_float(upper[i] << 16), second - bits_as_float(upper[i] & 0xffff0000u));
      }
      MAGISTER_UNROLL
      for (int j = 0; j < 8; ++j) {
        const auto pair = [&](int i) {
          const std::uint32_t x = words[i].word[j / 2], y = words[i + 1].word[j / 2];
          return j % 2 == 0 ? lower_halves(x, y) : upper_halves(x, y);
        };
        const std::uint32_t right[2] = {pair(0), pair(2)};
        t.mma_bf16(sums[j], upper, right);
        t.mma_bf16(sums[j], lower, right);
      }
    }
  }

  template <typename Thread>
  MAGISTER_DEVICE void finish(Thread& t, int row, int first_head, float best, float sum,
                              const float (&sums)[8][4]) const {
    const auto partial = [&](int head) {
      return (static_cast<std::int64_t>(row) * a.H + first_head + head) * a.K + t.block_z();
    };
    const int own_head = t.thread() / 16;
    if (t.thread() % 16 == 0 && first_head + own_head < a.H) {
      a.partial_RHK2[2 * partial(own_head)] = best;
      a.partial_RHK2[2 * partial(own_head) + 1] = sum;
    }
    MAGISTER_UNROLL
    for (int i = 0; i < 4; ++i) {  // numbers 8 (2p) and 8 (2p + 1) of the warp's 64, and the seven after each
      const int head = t.lane() / 4 + i / 2 * 8, column = t.warp() * 64 + t.lane() % 4 * 16 + i % 2 * 8;
      if (first_head + head >= a.H || column >= a.C) continue;
      float* const to = a.partial_RHKC + partial(head) * a.C + column;
      MAGISTER_UNROLL
      for (int j = 0; j < 8; j += 4) {
        Words4 words;
        MAGISTER_UNROLL
        for (int k = 0; k < 4; ++k) words.word[k] = float_as_bits(sums[j + k][i]);
        store_16(to + j, words);
      }
    }
  }
};

// Combines the chunks of a row and head in ascending order.
struct CombineLatents {
  static constexpr const char* kName = "combine_latents";
  static constexpr int kMaxThreads = 256;
  LatentArguments a;

  LaunchShape shape() const {
    const int threads = (a.C + 31) / 32 * 32;
    return {.blocks_x = static_cast<unsigned>(a.R),
            .blocks_y = static_cast<unsigned>(a.H),
            .threads = static_cast<unsigned>(threads < kMaxThreads ? threads : kMaxThreads)};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    const std::int64_t row = t.block_x(), head = row * a.H + t.block_y();
    const int visible = a.visible_R[row], size = latent_chunk_keys(visible),
              end = visible == 0 ? 0 : (visible + size - 1) / size;
    const float* stats = a.partial_RHK2 + head * a.K * 2;
    float best = -INFINITY;
    for (int k = 0; k < end; ++k) best = fmaxf(best, stats[2 * k]);
    for (int c = t.thread(); c < a.C; c += t.num_threads()) {
      float sum = 0, weights = 0;
      for (int k = 0; k < end; ++k) {
        const float weight = expf(stats[2 * k] - best);
        sum = fmaf(weight, a.partial_RHKC[(head * a.K + k) * a.C + c], sum);
        weights = fmaf(weight, stats[2 * k + 1], weights);
      }
      a.out_RHC[head * a.C + c] = stored<Bf16>(end > 0 ? sum / weights : 0.0f);
    }
  }
};

}  // namespace magister::gpu
