// Matrix products on one thread. Source: BLAS sgemm (column-major, hence the swapped operands), ATen mm for 16 bit.
#include "magister/model/matmul.h"

#include <ATen/ATen.h>

#include "magister/core/error.h"
#include "magister/model/cpu_kernels.h"

// The BLAS inside libtorch_cpu (MKL, 32-bit integers). ATen's own wrapper of it is not exported.
extern "C" void sgemm_(const char* transa, const char* transb, const int* m, const int* n, const int* k,
                       const float* alpha, const float* a, const int* lda, const float* b, const int* ldb,
                       const float* beta, float* c, const int* ldc);

namespace magister {

void sgemm(bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const float* a,
           std::int64_t a_stride, const float* b, std::int64_t b_stride, float beta, float* c, std::int64_t c_stride) {
  if (m == 0 || n == 0) return;
  const char transa = transpose_b ? 'T' : 'N';
  const char transb = 'N';
  const int rows = static_cast<int>(n), columns = static_cast<int>(m), inner = static_cast<int>(k);
  const int lda = static_cast<int>(b_stride), ldb = static_cast<int>(a_stride), ldc = static_cast<int>(c_stride);
  sgemm_(&transa, &transb, &rows, &columns, &inner, &alpha, b, &lda, a, &ldb, &beta, c, &ldc);
}

namespace {

// 16-bit weights: activations are rounded to the weights' type, the product comes back rounded and is widened.
void linear_tile_16bit(const float* x, std::int64_t x_stride, std::int64_t rows, const at::Tensor& weight_NK, float* out,
                       std::int64_t out_stride, bool accumulate) {
  const auto options = at::TensorOptions().dtype(at::kFloat);
  const at::Tensor x_MK =
      at::from_blob(const_cast<float*>(x), {rows, weight_NK.size(1)}, {x_stride, 1}, options).to(weight_NK.scalar_type());
  at::Tensor out_MN = at::from_blob(out, {rows, weight_NK.size(0)}, {out_stride, 1}, options);
  const at::Tensor product_MN = at::mm(x_MK, weight_NK.t());
  if (accumulate) {
    out_MN.add_(product_MN);
  } else {
    out_MN.copy_(product_MN);
  }
}

}  // namespace

void linear_tile(const float* x, std::int64_t x_stride, std::int64_t rows, const Linear& linear, float* out,
                 std::int64_t out_stride, bool accumulate) {
  const at::Tensor& weight_NK = linear.weight_NK;
  const std::int64_t n = weight_NK.size(0), k = weight_NK.size(1);
  if (weight_NK.scalar_type() == at::kFloat) {
    sgemm(true, rows, n, k, 1.0f, x, x_stride, weight_NK.const_data_ptr<float>(), k, accumulate ? 1.0f : 0.0f, out,
          out_stride);
  } else {
    linear_tile_16bit(x, x_stride, rows, weight_NK, out, out_stride, accumulate);
  }
  if (linear.bias_N.defined()) cpu_kernels().add_bias(out, out_stride, linear.bias_N.const_data_ptr<float>(), rows, n);
}

}  // namespace magister
