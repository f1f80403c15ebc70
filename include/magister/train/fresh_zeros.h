// Zeros that are not written: the system maps a page when a thread first touches it. at::zeros writes all of them at
// once on one thread, page by page: 1.4 GB/s on an H200's host, so 10 s for the weights and moments of a model of 1.2e9
// parameters.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace magister {

// f32 [size], CPU, in huge pages if the system has them. Throws Error(kConfig) if the system has no address space for
// it. Local.
at::Tensor fresh_zeros(std::int64_t size);

}  // namespace magister
