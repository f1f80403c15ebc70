// A build without GPU code has no cuBLASLt, so there are no algorithms.
#include "model/gpu/fixed_product.h"

namespace magister::gpu {

std::shared_ptr<const ProductAlgorithms> lt_algorithms(std::int64_t, std::int64_t, at::ScalarType, at::ScalarType,
                                                       const Queue&, std::int64_t) {
  return nullptr;
}

bool has_cublas_lt() { return false; }

}  // namespace magister::gpu
