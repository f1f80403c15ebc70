// Adds an adapter's product to rows of a weight, with the bits of add_lora_product() (io/checkpoint/lora_adapter.h):
// sums over the rank in order with fused multiply-adds.
// Legend: N rows and K columns of the weight, R the adapter's rank.
#pragma once

#include "magister/device/device_code.h"
#include "train/adamw_number.h"

namespace magister::gpu {

struct MergeFactors {
  static constexpr const char* kName = "merge_factors";
  static constexpr int kMaxThreads = 256;
  float* weight;       // [N, K], contiguous
  const float *b, *a;  // [N, R] and [R, K], with the strides below
  std::int64_t b_row, b_column, a_row, a_column;
  std::int64_t N, K, R;
  float scale;

  LaunchShape shape() const {
    return {.blocks_x = static_cast<unsigned>((N * K + kMaxThreads - 1) / kMaxThreads), .threads = kMaxThreads};
  }

  template <typename Thread>
  MAGISTER_DEVICE void operator()(Thread& t) const {
    const std::int64_t i = t.block_x() * kMaxThreads + t.thread();
    if (i >= N * K) return;
    const float *const b_of_row = b + i / K * b_row, *const a_of_column = a + i % K * a_column;
    float sum = 0;
    for (std::int64_t r = 0; r < R; ++r) sum = adamw::fused_add(b_of_row[r * b_column], a_of_column[r * a_row], sum);
    weight[i] = adamw::fused_add(scale, sum, weight[i]);
  }
};

}  // namespace magister::gpu
