// A product of few rows for each head, with a weight of its own: the kernels of product.h in one launch.
#pragma once

#include "model/gpu/product_kernels.h"
#include "model/gpu/wide_product_kernel.h"

namespace magister::gpu {

// Product: DecodeProduct or WideProduct. Blocks of one head are neighbours along x and y.
template <typename Product>
struct EachHead {
  static constexpr const char* kName = "head_products";
  static constexpr int kMaxThreads = Product::kMaxThreads;
  static constexpr bool kWaits = true;
  static constexpr int kMinBlocks = Product::kMinBlocks;
  Product first;
  HeadStrides steps;

  LaunchShape shape() const {
    LaunchShape shape = first.shape();
    shape.blocks_z = static_cast<unsigned>(steps.heads);
    return shape;
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    Product product = first;
    product.a.weight.rows += t.block_z() * steps.weight_bytes;
    product.a.x_MK += t.block_z() * steps.x;
    product.a.out_MN = static_cast<unsigned char*>(product.a.out_MN) + t.block_z() * steps.out_bytes;
    product(t);
  }
};

}  // namespace magister::gpu
