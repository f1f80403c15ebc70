// cuBLASLt's products for the rows of decoding passes, in place of our own: 4.7 times as fast for 256 rows on an H200 (8B, bf16), 2.2 times for 64, and slower
// for the few rows that DecodeProduct (product_kernels.h) is made for. One algorithm a weight for any number of rows, so a row's bits stay its own; they are
// others than those of our kernels, which is why a run asks for one or the other (model.decoding). Source: tests/bench/README.md.
// Legend: M rows, N outputs, K inputs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "magister/device/launch.h"
#include "model/gpu/fixed_product.h"
#include "model/gpu/gpu_weights.h"

namespace magister::gpu {

class DecodeProducts {
 public:
  // As lt_algorithms(); tests have others.
  using Algorithms = std::function<std::shared_ptr<const ProductAlgorithms>(
      std::int64_t N, std::int64_t K, at::ScalarType type, at::ScalarType out_type, const Queue& queue,
      std::int64_t asked_rows)>;

  // Tries the algorithms of each shape of the layers' weights, which are plain bf16. Throws Error(kConfig) where one has none whose rows have their own
  // bits, and of codes, 8-bit floats and experts, which have kernels of their own. A head that has none (a vocabulary of 50,257) goes on as it
  // was. Local.
  DecodeProducts(const GpuWeights& weights, const Queue& queue, const Algorithms& algorithms = lt_algorithms);

  bool has_head() const { return head_.defined(); }

  // At most kMostDecodeRows rows, x_MK bf16 and out_MN (bf16, or f32 of the products that end a block) contiguous; queued, and
  // part of a graph that is being recorded. The bias is added after bf16 is rounded.
  void multiply(const GpuLinear& linear, const at::Tensor& x_MK, const at::Tensor& out_MN, const Queue& queue) const;
  // The same of the head, f32.
  void multiply_by_head(const GpuLinear& head, const at::Tensor& x_MK, const at::Tensor& out_MN,
                        const Queue& queue) const;

 private:
  FixedProduct head_;
  std::map<std::pair<std::int64_t, std::int64_t>, FixedProduct> of_shape_[2];  // by N, K; [1]: with f32 results
};

}  // namespace magister::gpu
