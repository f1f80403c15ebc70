// Panels for linear_tile(): of weights that are loaded row by row, and of f32 matrices that are multiplied once, as
// training does with weights that change at every step. They are made at the speed of memory: transposed in blocks of
// 8 x 8 in registers, or copied in bands of 8 rows that are read from end to end. One thread.
// Shapes: M, N, K as in matmul.h.
#pragma once

#include <ATen/core/Tensor.h>

#include "magister/model/cpu/matmul.h"

namespace magister {

// Panels of a weight [N, K] in `dtype` (f32, bf16, f16), as pack() makes them, in memory of empty_panels(), not written
// yet. clear_padding() writes zeros to the panels that have padding, and then pack_rows() the weight.
Linear empty_packed(std::int64_t N, std::int64_t K, at::ScalarType dtype);
void clear_padding(Linear& packed);
// Writes rows [first, first + R) of the weight. rows_RK: in the weight's dtype, rows contiguous. Threads may write
// different rows at the same time.
void pack_rows(const at::Tensor& rows_RK, std::int64_t first, Linear& packed);

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

// The two moves that panels are made of. Pointers to f32; strides in numbers.
// to[c, r] = from[r, c].
void turn(const float* from, std::int64_t rows, std::int64_t columns, std::int64_t stride, float* to,
          std::int64_t to_stride);
// Copies rows of `columns` <= 48 numbers to rows of 48; what is behind their numbers stays as it is.
void copy_to_panel(const float* from, std::int64_t rows, std::int64_t columns, std::int64_t stride, float* to);

}  // namespace magister
