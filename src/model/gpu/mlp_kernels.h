// The kernel between an MLP's products, for every activation, with a gate or without. GateMultiply
// (elementwise_kernels.h) and GateQuantize (fp8_kernel.h) compute the most common functions alone.
// Legend: T packed tokens, F MLP columns of this shard, A the activations' type (Bf16 or float).
#pragma once

#include "model/gpu/elementwise_kernels.h"

namespace magister::gpu {

// An MLP's function of up, or of gate and up; see ModelConfig for each field.
struct MlpFunction {
  Activation activation = Activation::kSilu;
  bool gated = true;
  bool xielu = false;
  float alpha_p = 0, alpha_n = 0;            // xIELU's
  float swiglu_alpha = 0, swiglu_limit = 0;  // limit 0: the activation
  // True for the functions of GateMultiply.
  bool is_plain_gate() const {
    return gated && !xielu && swiglu_limit == 0 &&
           (activation == Activation::kSilu || activation == Activation::kGeluTanh);
  }
};

// NaN stays NaN in all of them.
MAGISTER_DEVICE float activated(Activation activation, float x) {
  constexpr float kRootOfHalf = 0.70710678f;
  if (activation == Activation::kGelu) return 0.5f * x * (1.0f + erff(x * kRootOfHalf));
  if (activation == Activation::kRelu) return x < 0 ? 0.0f : x;
  if (activation == Activation::kRelu2) return x < 0 ? 0.0f : x * x;
  return gated(activation, x, 1.0f);
}

// Source: Xielu in weights.h.
MAGISTER_DEVICE float xielu(float x, float alpha_p, float alpha_n) {
  constexpr float kBeta = 0.5f, kLeast = -1e-6f;
  if (x > 0) return alpha_p * x * x + kBeta * x;
  return alpha_n * (expm1f(x > kLeast ? kLeast : x) - x) + kBeta * x;
}

MAGISTER_DEVICE float limited_swiglu(float gate, float up, float alpha, float limit) {
  if (gate > limit) gate = limit;
  if (up > limit) up = limit;
  if (up < -limit) up = -limit;
  return divide_roughly(gate, 1.0f + expf(-alpha * gate)) * (up + 1.0f);
}

// out = the function of each column of `up_TN`.
template <typename A>
struct ActivateRows {
  static constexpr const char* kName = "activate_rows";
  static constexpr int kMaxThreads = 256;
  const A* up_TN;  // [T, 2F], gate first; without a gate [T, F]
  A* out_TF;
  std::int64_t F;
  MlpFunction function;

  LaunchShape shape(std::int64_t T) const { return MlpColumns::shape(T, F); }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    const A* row = up_TN + t.block_x() * (function.gated ? 2 * F : F);
    MlpColumns::run(t, row, function.gated ? row + F : row, out_TF + t.block_x() * F, F,
                    [&](float gate, float up) { return of(gate, up); });
  }

 private:
  // Without a gate both are the same number.
  MAGISTER_DEVICE float of(float gate, float up) const {
    if (function.xielu) return xielu(up, function.alpha_p, function.alpha_n);
    if (!function.gated) return activated(function.activation, up);
    if (function.swiglu_limit > 0) return limited_swiglu(gate, up, function.swiglu_alpha, function.swiglu_limit);
    return activated(function.activation, gate) * up;
  }
};

}  // namespace magister::gpu
