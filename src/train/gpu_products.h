// The products of a pass in GPU code, differentiable. With bf16 both operands of each of the three products are rounded
// to bf16 and their products summed in f32, as torch's autocast does; weights that read the same rows are rounded into
// one matrix and multiplied as one, forward and backward. Weights are rounded again at each use: this costs a hundredth
// of a micro-batch's time, while keeping them would take half of the weights' memory.
// Legend: T rows of a packed batch, K inputs, N outputs, R rank of an adapter.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "magister/model/activation.h"

namespace magister {

struct GpuWeight {
  at::Tensor weight;          // f32 [N, K], or [K, N] if inputs come first
  at::Tensor bias_N{};        // f32; undefined: none
  at::Tensor a_RK{}, b_NR{};  // f32, adapter; undefined: none
};

struct GpuLinearOptions {
  bool bf16 = false;
  bool inputs_first = false;
  at::ScalarType to = at::kFloat;  // type of the results; kBFloat16 only with bf16
  double adapter_scale = 1.0;
};

// The source of a product's rows, if it is kept anyway: the backward pass makes the rows again, and they need not be
// kept.
struct RowsFrom {
  enum Kind : std::int64_t { kThemselves, kGate, kNorm };
  Kind kind = kThemselves;
  Activation activation = Activation::kSilu;  // kGate: x is [T, 2 K], gate_up_TF2 of gpu_gate()
  // kNorm: x = gpu_rms_norm(stream, weight, eps, kBFloat16), contiguous.
  at::Tensor stream_TK{}, weight_K{};
  double eps = 0;
};

// Returns [T, sum of N]: for each weight, side by side, x W^T + bias, plus scale (x A^T) B^T. x: f32, or with bf16 also
// bf16; its gradient has its type, the others are f32. onto_TN: f32, added to an f32 result by the product itself;
// undefined: nothing. Without bf16: one weight, no adapter, nothing added, and kThemselves.
at::Tensor gpu_linear(const at::Tensor& x_TK, const std::vector<GpuWeight>& weights, const GpuLinearOptions& options,
                      const at::Tensor& onto_TN = {}, const RowsFrom& from = {});

// left right, f32. bf16: both are rounded to bf16 if they are not, and their products summed in f32. Not
// differentiable.
at::Tensor gpu_product(const at::Tensor& left_MK, const at::Tensor& right_KN, bool bf16);
// out += left right, or out = left right. out: f32 or bf16, to which the f32 sums are rounded once; operands both bf16
// or both f32.
void gpu_add_product(const at::Tensor& left_MK, const at::Tensor& right_KN, at::Tensor out_MN);
void gpu_product_into(const at::Tensor& left_MK, const at::Tensor& right_KN, at::Tensor out_MN);

}  // namespace magister
