// Products for the rows of decoding passes of many texts: those of cuBLASLt, as an alternative to our own kernels for
// few rows, and CodeProduct for weights in codes. On an H200 (8B, bf16) cuBLASLt's are 4.7 times as fast for 256 rows
// and 2.2 times for 64, but slower for the few rows for which DecodeProduct (product_kernels.h) is made. One algorithm
// per weight is used for any number of rows, so a row's bits do not depend on other rows. They differ from those of our
// kernels, therefore a run selects one or the other (model.decoding). Codes of shapes that CodeProduct does not take
// become bf16 before each product, as for prompts, in one buffer for all of them.
// Source: tests/bench/README.md; costs of codes: src/decisions/063-codes-in-decoding-for-throughput.md.
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

  // Tries the algorithms for each shape of the layers' weights that CodeProduct does not take. Throws Error(kConfig)
  // if a shape has no algorithm that gives each row its own bits. A head without such an algorithm (a vocabulary of
  // 50,257) keeps using our kernels. Local.
  DecodeProducts(const GpuWeights& weights, const Queue& queue, const Algorithms& algorithms = lt_algorithms);

  bool has_head() const { return head_.defined(); }
  // Bytes of the buffers for codes; decoding_code_bytes() plans them.
  std::uint64_t num_bytes() const { return bytes_of({plain_, pieces_}); }

  // At most kMostDecodeRows rows, as bf16 or, for a weight in fp8, as 8-bit floats with their scales. out_MN is bf16,
  // or f32 for the last product of a block. All are contiguous. The product is queued, and can be part of a graph that
  // is being captured. The bias is added after rounding to bf16, or before if CodeProduct takes the weight.
  void multiply(const GpuLinear& linear, const ProductRows& rows, const at::Tensor& out_MN, const Queue& queue) const;
  // The same for the head, in f32.
  void multiply_by_head(const GpuLinear& head, const at::Tensor& x_MK, const at::Tensor& out_MN,
                        const Queue& queue) const;

 private:
  // The weight in bf16, or the buffer in which its codes become that; for codes valid until the next call. Queued.
  at::Tensor plain(const GpuLinear& linear, const Queue& queue) const;
  ProductFactors factors_of(const GpuLinear& linear, const ProductRows& rows, const Queue& queue) const;
  FixedProduct chosen_for(const GpuLinear& linear, at::ScalarType out_type, const Queue& queue,
                          const Algorithms& algorithms) const;
  void queue_product(const FixedProduct& product, const GpuLinear& linear, const ProductRows& rows,
                     const at::Tensor& out_MN, const Queue& queue) const;

  void multiply_codes(const GpuLinear& linear, const at::Tensor& x_MK, const at::Tensor& out_MN,
                      const Queue& queue) const;

  at::Tensor plain_;   // bf16, the numbers of the largest weight that becomes plain; undefined without one
  at::Tensor pieces_;  // f32, of the largest CodeProduct; undefined without one
  FixedProduct head_;
  // By N, K, and whether the weight is in fp8. [1]: with f32 results.
  std::map<std::tuple<std::int64_t, std::int64_t, bool>, FixedProduct> of_shape_[2];
};

}  // namespace magister::gpu
