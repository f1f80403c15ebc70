// AdamW of one number, with the same bits in the host's loops and in a GPU's kernel: a product that is added is one
// operation with one rounding, and nothing is left to the compiler.
// Source: torch.optim.AdamW's operations in their order; Loshchilov & Hutter, arXiv 1711.05101.
#pragma once

#include <cmath>

#include "magister/device/device_code.h"

namespace magister {

struct AdamwRates {
  float keep;  // 1 - lr * weight_decay, for parameters that decay
  float rate1, beta2, rate2, step_size, root_correction, epsilon, scale;
};

namespace adamw {

#if defined(__CUDACC__)
MAGISTER_DEVICE float fused_add(float a, float b, float c) { return __fmaf_rn(a, b, c); }
MAGISTER_DEVICE float times(float a, float b) { return __fmul_rn(a, b); }
MAGISTER_DEVICE float over(float a, float b) { return __fdiv_rn(a, b); }
MAGISTER_DEVICE float root(float a) { return __fsqrt_rn(a); }
#else
MAGISTER_DEVICE float fused_add(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
MAGISTER_DEVICE float times(float a, float b) { return a * b; }
MAGISTER_DEVICE float over(float a, float b) { return a / b; }
MAGISTER_DEVICE float root(float a) { return std::sqrt(a); }
#endif

}  // namespace adamw

// keep: rates.keep, or 1 without decay.
MAGISTER_DEVICE void adamw_number(const AdamwRates& rates, float keep, float gradient, float& weight, float& mean,
                                  float& square) {
  const float g = adamw::times(gradient, rates.scale);
  mean = adamw::fused_add(rates.rate1, g - mean, mean);
  square = adamw::fused_add(square, rates.beta2, adamw::times(adamw::times(rates.rate2, g), g));
  const float divisor = adamw::over(adamw::root(square), rates.root_correction) + rates.epsilon;
  weight = adamw::fused_add(weight, keep, -adamw::times(rates.step_size, adamw::over(mean, divisor)));
}

}  // namespace magister
