// Tensors in the form that the kernels of train/gpu/ take.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace magister {

// nullptr for an undefined tensor. Number is its element type: float, gpu::Bf16, an integer.
template <typename Number>
Number* numbers(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<Number*>(tensor.data_ptr()) : nullptr;
}

inline bool is_aligned_16(const at::Tensor& tensor) {
  return reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr()) % 16 == 0;
}

}  // namespace magister
