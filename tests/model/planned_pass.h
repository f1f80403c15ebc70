// The memory of a GPU's passes against its plan, counted byte by byte on the host.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <utility>
#include <vector>

#include "magister/parallel/process_group.h"
#include "model/gpu/gpu_backend.h"
#include "support/counted_bytes.h"

namespace magister {

// Part of a token's plan that passes without a cache use, by two passes of so many sequences of 2 tokens: attention's
// copies in double, which no GPU makes, are small then. Fails where a pass takes more than its plan.
inline double use_of_a_tokens_plan(const ModelConfig& config, at::ScalarType dtype,
                                   std::pair<std::size_t, std::size_t> sequences) {
  const auto group = make_single_process_group();
  gpu::GpuBackend model(gpu::random_gpu_weights(config, *group, dtype, {}, gpu::Queue{}), *group, gpu::Queue{});
  std::vector<double> planned, used;
  for (const std::size_t count : {sequences.first, sequences.second}) {
    const PackedBatch batch = pack_sequences(std::vector<std::vector<TokenId>>(count, {1, 2}));
    model.forward(batch, {});  // tables are made once
    CountedBytes counted;
    const at::Tensor hidden_TD = model.forward(batch, {});
    used.push_back(static_cast<double>(counted.most()));
    planned.push_back(static_cast<double>(
        gpu_activation_bytes(config, partition_for(config, 0, 1), 2 * static_cast<std::int64_t>(count), 0, dtype)));
    EXPECT_LE(used.back(), planned.back());
  }
  const double a_token = (used[1] - used[0]) / (planned[1] - planned[0]);
  std::printf("%zu tokens in %s: %.2f MB planned, %.2f used; of a token's plan %.2f are used\n", 2 * sequences.second,
              c10::toString(dtype), 1e-6 * planned[1], 1e-6 * used[1], a_token);
  return a_token;
}

}  // namespace magister
