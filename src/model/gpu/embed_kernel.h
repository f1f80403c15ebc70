// The first kernel of a pass: embeddings of token ids, and of positions in models that learn them.
// Legend: T packed tokens, D hidden, v this shard's part of the vocabulary, P rows of the position table, A the
// activations' type (Bf16 or float).
#pragma once

#include "magister/device/device_code.h"
#include "magister/device/numbers_at_once.h"

namespace magister::gpu {

// Rows of the embedding table times `scale`; zeros for ids that another shard holds. The first shard also adds the
// vectors of learned positions.
template <typename A>
struct EmbedRows {
  static constexpr const char* kName = "embed_rows";
  static constexpr int kMaxThreads = 256;
  const A* table_vD;
  const std::int32_t* ids_T;
  float* hidden_TD;
  std::int64_t D, vocab_begin, vocab_end;
  float scale = 1.0f;
  // Rows of the position table, which begins with `skipped_rows` others, and each token's position; or nullptr.
  const A* positions_PD = nullptr;
  const std::int32_t* positions_T = nullptr;
  std::int64_t skipped_rows = 0;

  // One block per token.
  LaunchShape shape(std::int64_t T) const { return {.blocks_x = static_cast<unsigned>(T), .threads = 256}; }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    at_once(D % 8 == 0, [&](auto n) { run<n.kCount>(t); });
  }

 private:
  template <int kAtOnce, typename Thread>
  MAGISTER_DEVICE void run(Thread& t) const {
    const std::int64_t row = t.block_x(), id = ids_T[row];
    const bool mine = id >= vocab_begin && id < vocab_end;
    for (std::int64_t d = t.thread() * kAtOnce; d < D; d += t.num_threads() * kAtOnce) {
      float values[kAtOnce] = {};
      if (mine) load<kAtOnce>(table_vD + (id - vocab_begin) * D + d, values);
      MAGISTER_UNROLL
      for (int i = 0; i < kAtOnce; ++i) values[i] = mine ? values[i] * scale : 0.0f;
      if (positions_PD != nullptr) add_position<kAtOnce>(row, d, values);
      store<kAtOnce>(hidden_TD + row * D + d, values);
    }
  }

  template <int kAtOnce>
  MAGISTER_DEVICE void add_position(std::int64_t row, std::int64_t d, float (&values)[kAtOnce]) const {
    float position[kAtOnce];
    load<kAtOnce>(positions_PD + (skipped_rows + positions_T[row]) * D + d, position);
    MAGISTER_UNROLL
    for (int i = 0; i < kAtOnce; ++i) values[i] += position[i];
  }
};

}  // namespace magister::gpu
