// The products of all experts of a layer in one launch: DecodeProduct for each item of group_routes_kernel.h, so a row
// has the bits that it has in a product of its expert alone.
// Legend: M rows, N outputs, K inputs, X experts, I items.
#pragma once

#include "model/gpu/group_routes_kernel.h"
#include "model/gpu/product_kernels.h"

namespace magister::gpu {

// Where an expert's weight is on the device; the rest of a StoredWeight is the same for all experts of a layer.
struct ExpertPlace {
  const unsigned char* rows;
  const std::uint16_t* scales;
  const std::uint16_t* offsets;
  const float* bias_N;           // or nullptr
  const float* output_scales_N;  // or nullptr
};

// Row i of an item is row first + i of x and of the result. Blocks with the same item are neighbours. The grid has a
// row of blocks for each item that there may be; those without work leave at once.
template <typename Product>
struct GroupedProduct {
  static constexpr const char* kName = "grouped_product";
  static constexpr int kMaxThreads = Product::kMaxThreads;
  static constexpr int kMinBlocks = Product::kMinBlocks;
  Product product;  // its weight and bias have no places, its x and its result are those of all rows
  const ExpertPlace* places_X;
  const ExpertRows* items_I;
  int I;

  LaunchShape shape() const {
    LaunchShape shape = product.shape();
    shape.blocks_y = static_cast<unsigned>(I);
    return shape;
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    const ExpertRows item = items_I[t.block_y()];
    if (item.rows == 0) return;  // the whole block
    const ExpertPlace place = places_X[item.expert];
    Product own = product;
    own.a.weight.rows = place.rows;
    own.a.weight.scales = place.scales;
    own.a.weight.offsets = place.offsets;
    own.a.bias_N = place.bias_N;
    own.a.output_scales_N = place.output_scales_N;
    own.a.x_MK += item.first * own.a.x_stride;
    own.a.out_MN =
        static_cast<unsigned char*>(own.a.out_MN) + item.first * own.a.out_stride * (own.a.float_out ? 4 : 2);
    own.a.M = item.rows;
    own(t);
  }
};

}  // namespace magister::gpu
