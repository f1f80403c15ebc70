// A library's algorithms for products, pretended on the host: ATen's products, and what a test does to them.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "model/gpu/fixed_product.h"

namespace magister::gpu {

// In double and rounded once: rows have the same bits in every product.
inline at::Tensor exact(const ProductFactors& factors) {
  const at::Tensor out_MN = at::mm(factors.x_MK.to(at::kDouble), factors.weight_NK.to(at::kDouble).t());
  return factors.is_fp8() ? out_MN * factors.scale_M1 * factors.weight_scale_1N : out_MN;
}

class Pretended final : public ProductAlgorithms {
 public:
  using Algorithm = std::function<bool(const ProductFactors& factors, at::Tensor& out_MN)>;
  explicit Pretended(std::vector<Algorithm> algorithms) : algorithms_(std::move(algorithms)) {}
  int count() const override { return static_cast<int>(algorithms_.size()); }
  bool multiply(int algorithm, const ProductFactors& factors, at::Tensor& out_MN, const Queue&) const override {
    rows.push_back(factors.x_MK.size(0));
    return algorithms_[static_cast<std::size_t>(algorithm)](factors, out_MN);
  }
  mutable std::vector<std::int64_t> rows;  // of all products so far

 private:
  std::vector<Algorithm> algorithms_;
};

inline bool good(const ProductFactors& factors, at::Tensor& out) { return out.copy_(exact(factors)), true; }

}  // namespace magister::gpu
