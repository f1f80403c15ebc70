// Converts the codes of several experts to bf16 in one launch, for ExpertProduct.
// Legend: N outputs, K inputs, X experts.
#pragma once

#include "model/gpu/dequantize_kernel.h"
#include "model/gpu/grouped_product_kernel.h"

namespace magister::gpu {

template <int kBits>
struct DequantizeExperts {
  static constexpr const char* kName = "dequantize_experts";
  static constexpr int kMaxThreads = 256;
  Dequantize<kBits, Bf16> first;  // its weight has no places; the result of the first expert, before all others
  const ExpertPlace* places_X;
  int X;

  LaunchShape shape() const {
    LaunchShape shape = first.shape();
    shape.blocks_y = static_cast<unsigned>(X);
    return shape;
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    const ExpertPlace place = places_X[t.block_y()];
    Dequantize<kBits, Bf16> own = first;
    own.weight.rows = place.rows;
    own.weight.scales = place.scales;
    own.weight.offsets = place.offsets;
    own.out_NK += t.block_y() * own.weight.N * own.weight.K;
    own(t);
  }
};

}  // namespace magister::gpu
