// Panels for linear_tile() of f32 matrices that are multiplied once, as training does with weights that change at every step: made as fast as
// memory is read, in blocks of 8 x 8 that turn in registers. One thread.
// Shapes: M, N, K as in matmul.h.
#pragma once

#include <ATen/core/Tensor.h>

#include "magister/model/cpu/matmul.h"

namespace magister {

// x * weight_NK^T: what pack() makes, too. f32, rows contiguous.
Linear panels_of_weight(const at::Tensor& weight_NK);
// x * rows_KN, with the rows as they stand. f32, rows contiguous.
Linear panels_of_rows(const at::Tensor& rows_KN);
// The same with the weight rounded to bf16, for products whose x is rounded, too, and whose sums are f32: in pairs where the CPU has faster bf16
// products, else f32 panels of rounded numbers, for an x that the caller has rounded. weight_NK: f32 or bf16, rows contiguous.
Linear bf16_panels_of_weight(const at::Tensor& weight_NK);
// x_MN^T as a tensor [N, M] whose rows lie a little further apart than M: whole pages between rows would share one set of the L1 cache.
at::Tensor transposed(const at::Tensor& x_MN);

}  // namespace magister
