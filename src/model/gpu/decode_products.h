// cuBLASLt's products for the rows of decoding passes, as an alternative to our own kernels. On an H200 (8B, bf16) they
// are 4.7 times as fast for 256 rows and 2.2 times for 64, but slower for the few rows for which DecodeProduct
// (product_kernels.h) is made. One algorithm per weight is used for any number of rows, so a row's bits do not depend
// on other rows. They differ from those of our kernels, therefore a run selects one or the other (model.decoding).
// Source: tests/bench/README.md.
// Legend: M rows, N outputs, K inputs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <tuple>

#include "magister/device/launch.h"
#include "model/gpu/fixed_product.h"
#include "model/gpu/gpu_linear.h"
#include "model/gpu/gpu_weights.h"

namespace magister::gpu {

class DecodeProducts {
 public:
  // See lt_algorithms(); tests use others.
  using Algorithms = std::function<std::shared_ptr<const ProductAlgorithms>(
      std::int64_t N, std::int64_t K, at::ScalarType type, at::ScalarType out_type, const Queue& queue,
      std::int64_t asked_rows)>;

  // Tries the algorithms for each shape of the layers' weights, which must be bf16 or 8-bit floats. Throws
  // Error(kConfig) if a shape has no algorithm that gives each row its own bits, and for codes and experts, which have
  // their own kernels. A head without such an algorithm (a vocabulary of 50,257) keeps using our kernels. Local.
  DecodeProducts(const GpuWeights& weights, const Queue& queue, const Algorithms& algorithms = lt_algorithms);

  bool has_head() const { return head_.defined(); }

  // At most kMostDecodeRows rows, as bf16 or, for a weight in fp8, as 8-bit floats with their scales. out_MN is bf16,
  // or f32 for the last product of a block. All are contiguous. The product is queued, and can be part of a graph that
  // is being captured. The bias is added after rounding to bf16.
  void multiply(const GpuLinear& linear, const ProductRows& rows, const at::Tensor& out_MN, const Queue& queue) const;
  // The same for the head, in f32.
  void multiply_by_head(const GpuLinear& head, const at::Tensor& x_MK, const at::Tensor& out_MN,
                        const Queue& queue) const;

 private:
  FixedProduct head_;
  // By N, K, and whether the weight is in fp8. [1]: with f32 results.
  std::map<std::tuple<std::int64_t, std::int64_t, bool>, FixedProduct> of_shape_[2];
};

}  // namespace magister::gpu
