// Tensors as the kernels of train/gpu/ take them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace magister {

// nullptr for an undefined one. Number is what the tensor holds: float, gpu::Bf16, an integer.
template <typename Number>
Number* numbers(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<Number*>(tensor.data_ptr()) : nullptr;
}

inline bool is_aligned_16(const at::Tensor& tensor) {
  return reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr()) % 16 == 0;
}

}  // namespace magister
