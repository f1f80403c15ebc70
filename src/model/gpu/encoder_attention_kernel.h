// Attention of an encoder in f32: every token of a sequence attends to all of them, and DeBERTa adds products with the
// relative position vector of each distance. One launch computes all sequences and heads of a pass. A row's bits depend
// only on its own sequence: blocks of queries and tiles of keys are counted from its first token. Sources: the online
// softmax of flash attention (Dao et al., 2022); disentangled attention of DeBERTa (He et al., 2021).
// Legend: T packed tokens, D hidden, H heads of E numbers, N relative position vectors, X columns of a product, B
// blocks of up to 64 queries of one sequence.
#pragma once

#include "magister/device/device_code.h"

namespace magister::gpu {

struct EncoderBlock {
  std::int32_t begin;   // the sequence's first row in the pass
  std::int32_t length;  // tokens of the sequence
  std::int32_t first;   // the block's first query in the sequence
};

struct EncoderAttentionArguments {
  const float* qkv_TX;  // [T, 3 D]: queries, keys and values
  const EncoderBlock* blocks_B;
  float* context_TD;
  int B, H, E;
  float scale;
  // Only with distances. relative_NX: [N, 2 D], the vectors as queries and as keys. vectors: the number of the vector
  // for each distance d = query - key at vectors[d], for -reach < d < reach, where reach is a multiple of kTile that is
  // not smaller than the longest sequence.
  const float* relative_NX = nullptr;
  const std::int32_t* vectors = nullptr;
  bool content_to_position = false, position_to_content = false;
};

// A thread has 16 of a tile's 64 x 64 scores and 16 of its 64 x 64 outputs. Its queries are y, y + 16, ... and its keys
// x, x + 16, ..., so they have 7 distances, whose vectors it reads once for all 16 scores.
template <bool kRelative>
struct EncoderAttention {
  static constexpr const char* kName = kRelative ? "encoder_attention_with_distances" : "encoder_attention";
  static constexpr int kMaxThreads = 256, kMinBlocks = 2;
  static constexpr int kTile = 64;   // queries of a block, keys at a time, and numbers of a head's outputs in a block
  static constexpr int kSlice = 32;  // numbers of a head at a time in the scores

  EncoderAttentionArguments a;

  LaunchShape shape() const {
    return {.blocks_x = static_cast<unsigned>(a.B),
            .blocks_y = static_cast<unsigned>(a.H),
            .blocks_z = static_cast<unsigned>((a.E + kTile - 1) / kTile),
            .threads = kMaxThreads,
            .shared_bytes = sizeof(float) * (kValues + kTile * kTile)};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    const EncoderBlock block = a.blocks_B[t.block_x()];
    const Place place{static_cast<int>(t.block_y()) * a.E, static_cast<int>(t.block_z()) * kTile, t.thread() / kSide,
                      t.thread() % kSide};
    auto* const shared = reinterpret_cast<float*>(t.shared());
    float out[4][4] = {}, most[4], total[4];
    MAGISTER_UNROLL
    for (int r = 0; r < 4; ++r) {
      most[r] = -INFINITY;
      total[r] = 0;
    }
    for (int key = 0; key < block.length; key += kTile) {
      t.sync();  // weights and values of the tile before have been read
      stage_values(t, block, place, key, shared + kValues);
      float scores[4][4] = {};
      for (int e = 0; e < a.E; e += kSlice) {
        if (e > 0) t.sync();  // the slice before has been read
        stage_slice(t, block, place, key, e, shared);
        t.end_copies();
        t.template wait_for_copies<0>();
        t.sync();
        if (place.y < block.length - block.first && place.x < block.length - key) add_scores(place, e, shared, scores);
      }
      t.sync();  // weights take the place of queries and keys
      weigh(t, block, place, key, shared, scores, out, most, total);
      t.sync();
      if (place.y < block.length - block.first && place.column() < a.E)
        add_values(place, block.length - key, shared, out);
    }
    store(t, block, place, out, total);
  }

 private:
  static constexpr int kSide = 16;  // threads along queries, and along keys
  // Strides of rows in shared memory, with which 8 threads read 16 bytes each of different banks.
  static constexpr int kStride = kSlice + 4, kWeightStride = kTile + 4;
  static constexpr int kDistances = 2 * kTile - 1;
  // Places in shared memory: slices of queries, of keys, and of the vectors as keys and as queries; then values.
  static constexpr int kKeys = kTile * kStride, kDistanceKeys = 2 * kKeys,
                       kDistanceQueries = kDistanceKeys + kDistances * kStride,
                       kValues = kRelative ? kDistanceQueries + kDistances * kStride : kDistanceKeys;
  static_assert(kTile * kWeightStride <= kDistanceKeys);

  struct Place {
    int head;  // the head's first number in a row
    int part;  // the first of the head's outputs that this block computes
    int y, x;  // the thread's place
    MAGISTER_DEVICE int column() const { return part + 4 * x; }
  };

  MAGISTER_DEVICE static void load_4(const float* from, float (&to)[4]) {
    const Words4 words = load_16(from);
    MAGISTER_UNROLL
    for (int i = 0; i < 4; ++i) to[i] = bits_as_float(words.word[i]);
  }

  // Brings numbers [e, e + 4) of a head to shared memory, with zeros beyond E, or four zeros if not `there`.
  template <typename Thread>
  MAGISTER_DEVICE void stage_4(Thread& t, float* to, const float* head, int e, bool there) const {
    if (a.E % 4 == 0) {
      t.copy_16(to, head + e, there && e < a.E);
    } else {
      MAGISTER_UNROLL
      for (int i = 0; i < 4; ++i) to[i] = there && e + i < a.E ? head[e + i] : 0.0f;
    }
  }

  // Numbers of a head in a row of the sequence. which: 0 queries, 1 keys, 2 values.
  MAGISTER_DEVICE const float* row_of(const EncoderBlock& block, int row, int which, const Place& place) const {
    return a.qkv_TX + (static_cast<std::int64_t>(block.begin + row) * 3 + which) * a.H * a.E + place.head;
  }

  template <typename Thread>
  MAGISTER_DEVICE void stage_values(Thread& t, const EncoderBlock& block, const Place& place, int key,
                                    float* values) const {
    for (int row = place.y; row < kTile; row += kSide)
      stage_4(t, values + row * kTile + 4 * place.x, row_of(block, key + row, 2, place), place.column(),
              key + row < block.length);
  }

  template <typename Thread>
  MAGISTER_DEVICE void stage_slice(Thread& t, const EncoderBlock& block, const Place& place, int key, int e,
                                   float* shared) const {
    constexpr int kLanes = kSlice / 4, kRows = kMaxThreads / kLanes;  // threads of a row, rows at a time
    const int begin = t.thread() / kLanes, lane = 4 * (t.thread() % kLanes);
    for (int row = begin; row < kTile; row += kRows) {
      float* const to = shared + row * kStride + lane;
      stage_4(t, to, row_of(block, block.first + row, 0, place), e + lane, block.first + row < block.length);
      stage_4(t, to + kKeys, row_of(block, key + row, 1, place), e + lane, key + row < block.length);
    }
    if constexpr (kRelative) {
      const int nearest = block.first - key - (kTile - 1);
      for (int row = begin; row < kDistances; row += kRows) {
        float* const to = shared + row * kStride + lane;
        const float* const vector =
            a.relative_NX + static_cast<std::int64_t>(a.vectors[nearest + row]) * 2 * a.H * a.E + place.head;
        stage_4(t, to + kDistanceQueries, vector, e + lane, a.position_to_content);
        stage_4(t, to + kDistanceKeys, vector + a.H * a.E, e + lane, a.content_to_position);
      }
    }
  }

  // Adds the products of the slice that begins at number e.
  MAGISTER_DEVICE void add_scores(const Place& place, int e, const float* shared, float (&scores)[4][4]) const {
    const int numbers = a.E - e < kSlice ? a.E - e : kSlice;
    for (int i = 0; i < numbers; i += 4) {
      float q[4][4], k[4][4];
      MAGISTER_UNROLL
      for (int r = 0; r < 4; ++r) {
        load_4(shared + (place.y + kSide * r) * kStride + i, q[r]);
        load_4(shared + kKeys + (place.x + kSide * r) * kStride + i, k[r]);
      }
      MAGISTER_UNROLL
      for (int r = 0; r < 4; ++r) {
        MAGISTER_UNROLL
        for (int b = 0; b < 4; ++b) scores[r][b] = with_product(q[r], k[b], scores[r][b]);
      }
      if constexpr (kRelative) add_distances(place, shared + i, q, k, scores);
    }
  }

  MAGISTER_DEVICE static void add_distances(const Place& place, const float* shared, const float (&q)[4][4],
                                            const float (&k)[4][4], float (&scores)[4][4]) {
    MAGISTER_UNROLL
    for (int step = -3; step <= 3; ++step) {
      const float* const row = shared + (place.y - place.x + kSide * step + kTile - 1) * kStride;
      float as_key[4], as_query[4];
      load_4(row + kDistanceKeys, as_key);
      load_4(row + kDistanceQueries, as_query);
      MAGISTER_UNROLL
      for (int r = 0; r < 4; ++r) {
        const int b = r - step;
        if (b < 0 || b > 3) continue;
        scores[r][b] = with_product(k[b], as_query, with_product(q[r], as_key, scores[r][b]));
      }
    }
  }

  MAGISTER_DEVICE static float with_product(const float (&x)[4], const float (&y)[4], float sum) {
    MAGISTER_UNROLL
    for (int i = 0; i < 4; ++i) sum = fmaf(x[i], y[i], sum);
    return sum;
  }

  // Writes the exponentials of the tile's scores to shared memory, and scales what was added with a smaller maximum.
  // total: of this thread's keys.
  template <typename Thread>
  MAGISTER_DEVICE void weigh(Thread& t, const EncoderBlock& block, const Place& place, int key, float* weights,
                             float (&scores)[4][4], float (&out)[4][4], float (&most)[4], float (&total)[4]) const {
    MAGISTER_UNROLL
    for (int r = 0; r < 4; ++r) {
      float maximum = most[r];
      MAGISTER_UNROLL
      for (int b = 0; b < 4; ++b) {
        const bool there = key + place.x + kSide * b < block.length;
        scores[r][b] = there ? scores[r][b] * a.scale : -INFINITY;
        maximum = fmaxf(maximum, scores[r][b]);
      }
      MAGISTER_UNROLL
      for (int mask = kSide / 2; mask > 0; mask /= 2) maximum = fmaxf(maximum, t.shuffle_xor(maximum, mask));
      const float factor = expf(most[r] - maximum);
      most[r] = maximum;
      total[r] *= factor;
      MAGISTER_UNROLL
      for (int c = 0; c < 4; ++c) out[r][c] *= factor;
      MAGISTER_UNROLL
      for (int b = 0; b < 4; ++b) {
        const float weight = expf(scores[r][b] - maximum);
        total[r] += weight;
        weights[(place.y + kSide * r) * kWeightStride + place.x + kSide * b] = weight;
      }
    }
  }

  // Adds the values of a tile, of which `keys` are in the sequence.
  MAGISTER_DEVICE void add_values(const Place& place, int keys, const float* shared, float (&out)[4][4]) const {
    const int end = keys < kTile ? keys : kTile;
    for (int key = 0; key < end; key += 4) {
      float weights[4][4], values[4][4];
      MAGISTER_UNROLL
      for (int r = 0; r < 4; ++r) {
        load_4(shared + (place.y + kSide * r) * kWeightStride + key, weights[r]);
        load_4(shared + kValues + (key + r) * kTile + 4 * place.x, values[r]);
      }
      MAGISTER_UNROLL
      for (int r = 0; r < 4; ++r) {
        MAGISTER_UNROLL
        for (int i = 0; i < 4; ++i) {
          MAGISTER_UNROLL
          for (int c = 0; c < 4; ++c) out[r][c] = fmaf(weights[r][i], values[i][c], out[r][c]);
        }
      }
    }
  }

  template <typename Thread>
  MAGISTER_DEVICE void store(Thread& t, const EncoderBlock& block, const Place& place, float (&out)[4][4],
                             float (&total)[4]) const {
    MAGISTER_UNROLL
    for (int r = 0; r < 4; ++r) {
      MAGISTER_UNROLL
      for (int mask = kSide / 2; mask > 0; mask /= 2) total[r] += t.shuffle_xor(total[r], mask);
      const int row = block.first + place.y + kSide * r;
      if (row >= block.length || place.column() >= a.E) continue;
      float* const to =
          a.context_TD + static_cast<std::int64_t>(block.begin + row) * a.H * a.E + place.head + place.column();
      Words4 words;
      MAGISTER_UNROLL
      for (int c = 0; c < 4; ++c) words.word[c] = float_as_bits(out[r][c] / total[r]);
      if (a.E % 4 == 0) {
        store_16(to, words);
        continue;
      }
      for (int c = 0; c < 4 && place.column() + c < a.E; ++c) to[c] = bits_as_float(words.word[c]);
    }
  }
};

}  // namespace magister::gpu
