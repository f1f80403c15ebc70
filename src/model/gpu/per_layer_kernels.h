// Kernels of vectors by layer (model/cpu/per_layer_inputs.h) and of sparse gates (FeedForward::thin()), between
// products. The bits of a token depend on no other.
// Legend: T packed tokens, N layers, P numbers of a vector, v rows of this shard's part of the table, D hidden, F MLP
// columns of this shard, A the activations' type (Bf16 or float).
#pragma once

#include "model/gpu/elementwise_kernels.h"

namespace magister::gpu {

// This shard's part of the tokens' vectors: (norm(product / sqrt(D)) + scale * row of the token's id) / sqrt(2). One
// warp for each vector.
template <typename A>
struct PerLayerVectors {
  static constexpr const char* kName = "per_layer_vectors";
  static constexpr int kMaxThreads = 256;
  static constexpr int kWarps = kMaxThreads / kWarp;
  const A* product_TNP;  // or nullptr: another shard adds the normed product
  const float* norm_P;
  const A* table_vNP;  // rows of the ids in [begin, end)
  const std::int32_t* ids_T;
  float* vectors_TNP;
  std::int64_t N, P, begin, end, num_ids;  // a token with an id beyond num_ids takes row 0
  float product_scale, table_scale, eps;

  LaunchShape shape(std::int64_t T) const {
    return {.blocks_x = static_cast<unsigned>(T),
            .blocks_y = static_cast<unsigned>((N + kWarps - 1) / kWarps),
            .threads = kMaxThreads};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    const std::int64_t layer = t.block_y() * kWarps + t.warp();
    if (layer >= N) return;
    at_once(P % 8 == 0, [&](auto n) { run<n.kCount>(t, layer); });
  }

 private:
  template <int kAtOnce, typename Thread>
  MAGISTER_DEVICE void run(Thread& t, std::int64_t layer) const {
    constexpr float kHalf = 0.70710678118654752f;  // 1 / sqrt(2)
    const std::int64_t given = ids_T[t.block_x()], id = given < num_ids ? given : 0,
                       place = (t.block_x() * N + layer) * P;
    const bool mine = id >= begin && id < end;
    float scale = 0;
    if (product_TNP != nullptr) {
      float squares = 0;
      for (std::int64_t p = t.lane() * kAtOnce; p < P; p += kWarp * kAtOnce) {
        float x[kAtOnce];
        load<kAtOnce>(product_TNP + place + p, x);
        MAGISTER_UNROLL
        for (int i = 0; i < kAtOnce; ++i) squares += (x[i] * product_scale) * (x[i] * product_scale);
      }
      scale = product_scale / sqrtf(warp_sum(t, squares) / static_cast<float>(P) + eps);
    }
    for (std::int64_t p = t.lane() * kAtOnce; p < P; p += kWarp * kAtOnce) {
      float sum[kAtOnce] = {};
      if (product_TNP != nullptr) {
        float norm[kAtOnce];
        load<kAtOnce>(product_TNP + place + p, sum);
        load<kAtOnce>(norm_P + p, norm);
        MAGISTER_UNROLL
        for (int i = 0; i < kAtOnce; ++i) sum[i] = norm[i] * (sum[i] * scale);
      }
      if (mine) {
        float row[kAtOnce];
        load<kAtOnce>(table_vNP + ((id - begin) * N + layer) * P + p, row);
        MAGISTER_UNROLL
        for (int i = 0; i < kAtOnce; ++i) sum[i] += row[i] * table_scale;
      }
      MAGISTER_UNROLL
      for (int i = 0; i < kAtOnce; ++i) sum[i] *= kHalf;
      store<kAtOnce>(vectors_TNP + place + p, sum);
    }
  }
};

// out = act(gate) * vector of the layer. One warp per token.
template <typename A>
struct GateVectors {
  static constexpr const char* kName = "gate_vectors";
  static constexpr int kMaxThreads = 128;
  const A* gate_TP;
  const float* vectors_TNP;  // from the layer's first vector on
  A* out_TP;
  std::int64_t T, P, stride;  // stride: numbers between the vectors of two tokens
  Activation activation;

  LaunchShape shape() const { return {.blocks_x = static_cast<unsigned>((T + 3) / 4), .threads = kMaxThreads}; }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    const std::int64_t token = t.block_x() * 4 + t.warp();
    if (token >= T) return;
    at_once(P % 8 == 0, [&](auto n) { run<n.kCount>(t, token); });
  }

 private:
  template <int kAtOnce, typename Thread>
  MAGISTER_DEVICE void run(Thread& t, std::int64_t token) const {
    for (std::int64_t p = t.lane() * kAtOnce; p < P; p += kWarp * kAtOnce) {
      float gate[kAtOnce], vector[kAtOnce];
      load<kAtOnce>(gate_TP + token * P + p, gate);
      load<kAtOnce>(vectors_TNP + token * stride + p, vector);
      MAGISTER_UNROLL
      for (int i = 0; i < kAtOnce; ++i) gate[i] = gated(activation, gate[i], vector[i]);
      store<kAtOnce>(out_TP + token * P + p, gate);
    }
  }
};

// Adds norm(product) to `count` neighbouring vectors of each token's stream, and multiplies them by `factor`. One block
// per token.
template <typename A>
struct AddNormed {
  static constexpr const char* kName = "add_normed";
  static constexpr int kMaxThreads = 256;
  const A* product_TD;
  const float* norm_D;
  float* stream;                  // from the first token's first vector on
  std::int64_t D, count, stride;  // stride: numbers between two tokens
  float eps, factor = 1.0f;

  LaunchShape shape(std::int64_t T) const {
    return {.blocks_x = static_cast<unsigned>(T), .threads = 256, .shared_bytes = 32 * sizeof(float)};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    at_once(D % 8 == 0, [&](auto n) { run<n.kCount>(t); });
  }

 private:
  template <int kAtOnce, typename Thread>
  MAGISTER_DEVICE void run(Thread& t) const {
    const A* product_D = product_TD + t.block_x() * D;
    const float squares = sum_of_squares<kAtOnce>(t, product_D, D, reinterpret_cast<float*>(t.shared())),
                scale = 1.0f / sqrtf(squares / static_cast<float>(D) + eps);
    for (std::int64_t d = t.thread() * kAtOnce; d < D; d += t.num_threads() * kAtOnce) {
      float x[kAtOnce], norm[kAtOnce];
      load<kAtOnce>(product_D + d, x);
      load<kAtOnce>(norm_D + d, norm);
      MAGISTER_UNROLL
      for (int i = 0; i < kAtOnce; ++i) x[i] = norm[i] * (x[i] * scale);
      for (std::int64_t c = 0; c < count; ++c) {
        float sum[kAtOnce];
        float* to = stream + t.block_x() * stride + c * D + d;
        load<kAtOnce>(to, sum);
        MAGISTER_UNROLL
        for (int i = 0; i < kAtOnce; ++i) sum[i] = (sum[i] + x[i]) * factor;
        store<kAtOnce>(to, sum);
      }
    }
  }
};

// Sums of each row's gates, and of their squares, in f64: the variance is a difference of them.
template <typename A>
struct SumGates {
  static constexpr const char* kName = "sum_gates";
  static constexpr int kMaxThreads = 256;
  const A* gate_up_TF2;  // [T, 2F], gate first
  double* sums_T2;
  std::int64_t F;

  LaunchShape shape(std::int64_t T) const {
    return {.blocks_x = static_cast<unsigned>(T), .threads = 256, .shared_bytes = 32 * sizeof(double)};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    at_once(F % 8 == 0, [&](auto n) { run<n.kCount>(t); });
  }

 private:
  template <int kAtOnce, typename Thread>
  MAGISTER_DEVICE void run(Thread& t) const {
    double sum = 0, squares = 0;
    for (std::int64_t f = t.thread() * kAtOnce; f < F; f += t.num_threads() * kAtOnce) {
      float x[kAtOnce];
      load<kAtOnce>(gate_up_TF2 + t.block_x() * 2 * F + f, x);
      MAGISTER_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        sum += static_cast<double>(x[i]);
        squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
      }
    }
    auto* scratch = reinterpret_cast<double*>(t.shared());
    sum = block_sum(t, sum, scratch);
    squares = block_sum(t, squares, scratch);
    if (t.thread() != 0) return;
    sums_T2[2 * t.block_x()] = sum;
    sums_T2[2 * t.block_x() + 1] = squares;
  }
};

// out = act(max(0, gate - limit)) * up, where limit is mean + cutoff * deviation over the gates of all shards.
template <typename A>
struct SparseGate {
  static constexpr const char* kName = "sparse_gate";
  static constexpr int kMaxThreads = 256;
  const A* gate_up_TF2;
  const double* sums_T2;  // over all_F columns
  A* out_TF;
  std::int64_t F;
  double all_F, cutoff;
  Activation activation;

  LaunchShape shape(std::int64_t T) const { return MlpColumns::shape(T, F); }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    const double mean = sums_T2[2 * t.block_x()] / all_F, variance = sums_T2[2 * t.block_x() + 1] / all_F - mean * mean;
    const auto limit = static_cast<float>(mean + cutoff * sqrt(variance > 0 ? variance : 0.0));
    const A* gates = gate_up_TF2 + t.block_x() * 2 * F;
    MlpColumns::run(t, gates, gates + F, out_TF + t.block_x() * F, F,
                    [&](float gate, float up) { return gated(activation, above(gate - limit), up); });
  }

 private:
  MAGISTER_DEVICE static float above(float x) { return x < 0.0f ? 0.0f : x; }  // NaN stays
};

}  // namespace magister::gpu
