// Kernels of a mixture of experts between its products: the choice of each token, and the sum of its experts' outputs.
// Legend: T packed tokens, D hidden, X experts, k experts per token, A the activations' type (Bf16 or float).
#pragma once

#include "model/gpu/elementwise_kernels.h"

namespace magister::gpu {

// The k experts of each token in ascending order, and their weights, by the rule of choose_experts (model/routes.h):
// among equal logits the lower expert wins, probabilities are computed in f64, and a NaN logit makes the token's
// weights NaN. One warp per token.
struct ChooseExperts {
  static constexpr const char* kName = "choose_experts";
  static constexpr int kMaxThreads = 128;
  const float* logits_TX;
  std::int32_t* experts_Tk;
  float* weights_Tk;
  std::int64_t T;
  int X, k;
  bool normed;  // the probabilities of the chosen experts are divided by their sum

  LaunchShape shape() const {
    constexpr int kTokens = kMaxThreads / kWarp;
    return {.blocks_x = static_cast<unsigned>((T + kTokens - 1) / kTokens), .threads = kMaxThreads};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    const std::int64_t token = t.block_x() * t.num_warps() + t.warp();
    if (token >= T) return;  // the whole warp returns
    const float* logits = logits_TX + token * X;
    std::int32_t* experts = experts_Tk + token * k;
    float* weights = weights_Tk + token * k;
    // Each round finds the next expert in the order "larger logit first, then lower number".
    float last = kInfinity, largest = 0;
    int last_x = -1;
    double sum = 0;
    for (int i = 0; i < k; ++i) {
      float best = -kInfinity;
      int best_x = X;
      for (int x = t.lane(); x < X; x += kWarp) {
        const float logit = comparable(logits[x]);
        const bool is_after = logit < last || (logit == last && x > last_x);
        if (is_after && (best_x == X || logit > best)) best = logit, best_x = x;
      }
      for (int mask = kWarp / 2; mask > 0; mask /= 2) {
        const float other = t.shuffle_xor(best, mask);
        const int other_x = t.shuffle_xor(best_x, mask);
        if (other_x < X && (best_x == X || other > best || (other == best && other_x < best_x)))
          best = other, best_x = other_x;
      }
      if (i == 0) largest = best;
      last = best;
      last_x = best_x;
      if (t.lane() == 0) insert(experts, i, best_x);
      if (normed) sum += probability(logits[best_x], largest);
    }
    t.sync_warp();
    double others = 0;  // all probabilities if not normed, else only NaN
    for (int x = t.lane(); x < X; x += kWarp) {
      if (!normed || logits[x] != logits[x]) others += probability(logits[x], largest);
    }
    sum += warp_sum(t, others);
    for (int i = t.lane(); i < k; i += kWarp)
      weights[i] = static_cast<float>(probability(logits[experts[i]], largest) / sum);
  }

 private:
  static constexpr float kInfinity = __builtin_inff();
  MAGISTER_DEVICE static float comparable(float logit) { return logit == logit ? logit : -kInfinity; }
  MAGISTER_DEVICE static double probability(float logit, float largest) {
    return exp(static_cast<double>(logit) - static_cast<double>(largest));
  }
  // Inserts an expert into the first `count` numbers, which stay ascending.
  MAGISTER_DEVICE static void insert(std::int32_t* experts, int count, int expert) {
    int at = count;
    for (; at > 0 && experts[at - 1] > expert; --at) experts[at] = experts[at - 1];
    experts[at] = expert;
  }
};

// out[t] = the sum over i of weights[t, i] * rows[row_of[t, i]], in f32 and in this order.
template <typename A>
struct SumExperts {
  static constexpr const char* kName = "sum_experts";
  static constexpr int kMaxThreads = 256;
  const A* rows_ND;
  const std::int32_t* row_of_Tk;
  const float* weights_Tk;
  A* out_TD;
  std::int64_t D;
  int k;

  LaunchShape shape(std::int64_t T) const { return {.blocks_x = static_cast<unsigned>(T), .threads = 256}; }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    if (D % 8 == 0) {
      run<8>(t);
    } else {
      run<1>(t);
    }
  }

 private:
  template <int kAtOnce, typename Thread>
  MAGISTER_DEVICE void run(Thread& t) const {
    const std::int64_t first = t.block_x() * k;
    for (std::int64_t d = t.thread() * kAtOnce; d < D; d += t.num_threads() * kAtOnce) {
      float sums[kAtOnce] = {};
      for (int i = 0; i < k; ++i) {
        float row[kAtOnce];
        load<kAtOnce>(rows_ND + row_of_Tk[first + i] * D + d, row);
        MAGISTER_UNROLL
        for (int j = 0; j < kAtOnce; ++j) sums[j] += weights_Tk[first + i] * row[j];
      }
      store<kAtOnce>(out_TD + t.block_x() * D + d, sums);
    }
  }
};

}  // namespace magister::gpu
