// The products of a pass by a GPU's code, differentiable. With bf16 both operands of each of the three products are rounded to bf16 and their products summed in
// f32, as torch's autocast does; weights that read the same rows are rounded into one matrix and multiplied as one, forward and backward. Weights
// are rounded anew at each use: it costs a hundredth of a micro-batch's time, and keeping them half of the weights' memory.
// Legend: T rows of a packed batch, K inputs, N outputs, R rank of an adapter.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "magister/model/activation.h"

namespace magister {

struct GpuWeight {
  at::Tensor weight;          // f32 [N, K], or [K, N] where inputs come first
  at::Tensor bias_N{};        // f32; undefined: none
  at::Tensor a_RK{}, b_NR{};  // f32, of an adapter; undefined: none
};

struct GpuLinearOptions {
  bool bf16 = false;
  bool inputs_first = false;
  at::ScalarType to = at::kFloat;  // of the results; kBFloat16 only with bf16
  double adapter_scale = 1.0;
};

// What the rows of a product are made of, where that is kept anyway, so that the backward pass makes them again from it and they need not be kept.
struct RowsFrom {
  enum Kind : std::int64_t { kThemselves, kGate, kNorm };
  Kind kind = kThemselves;
  Activation activation = Activation::kSilu;  // kGate: x is [T, 2 K], gate_up_TF2 of gpu_gate()
  // kNorm: x = gpu_rms_norm(stream, weight, eps, kBFloat16), contiguous.
  at::Tensor stream_TK{}, weight_K{};
  double eps = 0;
};

// [T, sum of N]: x W^T + bias, plus scale (x A^T) B^T, of each weight side by side. x: f32, or bf16, with bf16 only; its gradient has its type, the others' are f32.
// onto_TN: f32, is added to an f32 result by the product itself; undefined: nothing. Without bf16: one weight, no adapter, nothing added, rows themselves.
at::Tensor gpu_linear(const at::Tensor& x_TK, const std::vector<GpuWeight>& weights, const GpuLinearOptions& options,
                      const at::Tensor& onto_TN = {}, const RowsFrom& from = {});

// left right, f32. bf16: both are rounded to bf16, unless they are, and their products summed in f32. Not differentiable.
at::Tensor gpu_product(const at::Tensor& left_MK, const at::Tensor& right_KN, bool bf16);
// out += left right, or out = left right. out: f32 or bf16, in which the sums of f32 are rounded once; operands both bf16 or both f32.
void gpu_add_product(const at::Tensor& left_MK, const at::Tensor& right_KN, at::Tensor out_MN);
void gpu_product_into(const at::Tensor& left_MK, const at::Tensor& right_KN, at::Tensor out_MN);

}  // namespace magister
