// Panels for linear_tile() of f32 matrices that are multiplied once, as training does with weights that change at every
// step. They are made at the speed of memory, in blocks of 8 x 8 that are transposed in registers. One thread.
// Shapes: M, N, K as in matmul.h.
#pragma once

#include <ATen/core/Tensor.h>

#include "magister/model/cpu/matmul.h"

namespace magister {

// For x * weight_NK^T; pack() gives the same panels. f32, rows contiguous.
Linear panels_of_weight(const at::Tensor& weight_NK);
// For x * rows_KN. f32, rows contiguous.
Linear panels_of_rows(const at::Tensor& rows_KN);
// Like panels_of_weight(), with the weight rounded to bf16, for products whose x is also rounded and whose sums are
// f32. Panels of pairs where the CPU has faster bf16 products; else f32 panels of rounded numbers, and the caller must
// round x. weight_NK: f32 or bf16, rows contiguous.
Linear bf16_panels_of_weight(const at::Tensor& weight_NK);
// x_MN^T as a tensor [N, M] whose row stride is a little larger than M: rows that are whole pages apart would share one
// set of the L1 cache.
at::Tensor transposed(const at::Tensor& x_MN);

}  // namespace magister
