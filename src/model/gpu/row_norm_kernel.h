// AddRmsNorm for the few rows of a decoding pass, with the same bits. A block of AddRmsNorm asks the memory three times
// one after the other: for the first numbers of the stream, for the others, and for the norm's weight, which has left
// the L2 cache since it was last used. Here the weight is loaded before the wait for earlier kernels, and then all
// numbers of the stream at once.
// Legend: T tokens, D hidden.
#pragma once

#include "model/gpu/elementwise_kernels.h"

namespace magister::gpu {

// kVectors: of eight numbers for each thread.
template <int kVectors>
struct AddRowNorm {
  static constexpr const char* kName = "add_rms_norm";
  static constexpr int kMaxThreads = AddRmsNorm<Bf16, float>::kMaxThreads;
  static constexpr bool kWaits = true;
  AddRmsNorm<Bf16, float> norm;

  // The most rows. Blocks have up to 108 registers a thread, too many for passes over prompts.
  static constexpr std::int64_t kMostRows = 8;
  static bool takes(const AddRmsNorm<Bf16, float>& norm, std::int64_t T) {
    return T <= kMostRows && norm.D % 8 == 0 && norm.D <= kMaxThreads * 8 * kVectors && norm.weight_D != nullptr;
  }
  // One block per token.
  LaunchShape shape(std::int64_t T) const {
    return {.blocks_x = static_cast<unsigned>(T), .threads = kMaxThreads, .shared_bytes = 32 * sizeof(float)};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    const std::int64_t D = norm.D;
    float* const row_D = norm.hidden_TD + t.block_x() * D;
    float weights[kVectors][8], values[kVectors][8], delta[kVectors][8];
    each_vector(t, [&](int v, std::int64_t d) { load_8(norm.weight_D + d, weights[v]); });
    t.wait_for_earlier();
    each_vector(t, [&](int v, std::int64_t d) {
      load_8(row_D + d, values[v]);
      if (norm.delta_TD != nullptr) load_8(norm.delta_TD + t.block_x() * D + d, delta[v]);
    });
    float squares = 0;
    each_vector(t, [&](int v, std::int64_t d) {
      if (norm.delta_TD != nullptr) {
        MAGISTER_UNROLL
        for (int i = 0; i < 8; ++i) values[v][i] = (values[v][i] + delta[v][i]) * norm.factor;
        store_8(row_D + d, values[v]);
      }
      MAGISTER_UNROLL
      for (int i = 0; i < 8; ++i) squares += values[v][i] * values[v][i];
    });
    const float mean = block_sum(t, squares, reinterpret_cast<float*>(t.shared())) / static_cast<float>(D),
                scale = 1.0f / sqrtf(mean + norm.eps);
    each_vector(t, [&](int v, std::int64_t d) {
      MAGISTER_UNROLL
      for (int i = 0; i < 8; ++i) values[v][i] = weights[v][i] * (values[v][i] * scale);
      store_8(norm.out_TD + t.block_x() * D + d, values[v]);
    });
  }

 private:
  // Calls body with each vector of this thread and its first number, in AddRmsNorm's order.
  template <typename Thread, typename Body>
  MAGISTER_DEVICE void each_vector(Thread& t, const Body& body) const {
    MAGISTER_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t d = (t.thread() + v * kMaxThreads) * 8;
      if (d < norm.D) body(v, d);
    }
  }
};

}  // namespace magister::gpu
