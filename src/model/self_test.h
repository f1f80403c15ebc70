// Shared by the self-tests of CPU and GPU models: a small block that needs no random generator, and the comparison.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "magister/model/batch.h"

namespace magister {

// 37 tokens in two sequences: an odd number of rows, a short sequence and a longer one.
PackedBatch self_test_batch(std::int64_t vocab_size);
// Values in about [-1, 1], f32.
at::Tensor self_test_block(std::int64_t rows, std::int64_t columns, at::Device device = at::kCPU);
// Throws Error(kInternal) if `fast` differs from `plain` by more than `tolerance` of its range, or is not finite in
// other places. kernels: the kernels in use, for the message.
void compare_paths(const char* path, const at::Tensor& fast, const at::Tensor& plain, double tolerance,
                   const char* kernels);

}  // namespace magister
