// The arithmetic of ATen's flash kernel for sequences of different lengths, on the host: in f32, from operands in bf16,
// with results in bf16. Its backward pass reads the output and the sums of the forward pass, as the kernel's does.
// Legend: T rows of a packed batch, H query heads, K KV heads, E numbers of a head.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace magister {

// Causal attention of a packed batch. window: keys that a query sees, with its own; 0: all earlier ones.
struct HostFlash {
  std::vector<std::int64_t> cu_seqlens;  // S + 1
  std::int64_t window = 0;
  double scale = 1;

  struct Forward {
    at::Tensor out_THE;  // bf16
    at::Tensor sums_HT;  // f32: the logarithm of each row's sum of exponentials
  };
  Forward forward(const at::Tensor& q_THE, const at::Tensor& k_TKE, const at::Tensor& v_TKE) const;

  struct Gradients {
    at::Tensor q_THE, k_TKE, v_TKE;  // bf16
  };
  Gradients backward(const at::Tensor& gradient_THE, const at::Tensor& q_THE, const at::Tensor& k_TKE,
                     const at::Tensor& v_TKE, const Forward& forward) const;
};

}  // namespace magister
