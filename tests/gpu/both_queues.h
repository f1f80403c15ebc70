// Shared by the tests of kernels on a GPU: runs a kernel there and in its emulation on the host, over the same numbers.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <type_traits>
#include <vector>

#include "gpu/gpu_under_test.h"
#include "magister/device/upload.h"

namespace magister::gpu::kernels_test {

using Tensors = std::vector<at::Tensor>;
// Runs a kernel on a queue over copies of the tensors on its device; -> all of them, on the CPU again.
inline Tensors run_on(const Queue& queue, const Tensors& inputs,
                      const std::function<void(const Tensors&, const Queue&)>& body) {
  Tensors there;
  for (const at::Tensor& tensor : inputs)
    there.push_back(tensor.to(device_of(queue), /*non_blocking=*/false, /*copy=*/true));
  body(there, queue);
  for (at::Tensor& tensor : there) tensor = tensor.cpu();
  return there;
}

struct Both {
  Tensors host, device;
};
inline Both on_both(const Tensors& inputs, const std::function<void(const Tensors&, const Queue&)>& body) {
  Both both{run_on(Queue{}, inputs, body), run_on(gpu_queue(), inputs, body)};
  const Tensors again = run_on(gpu_queue(), inputs, body);
  for (std::size_t i = 0; i < again.size(); ++i) {
    EXPECT_TRUE(at::equal(again[i].view(at::kByte), both.device[i].view(at::kByte)))
        << "tensor " << i << " differs in a second run";
  }
  return both;
}

template <typename A>
inline constexpr at::ScalarType kType = std::is_same_v<A, float> ? at::kFloat : at::kBFloat16;
template <typename A>
A* data(const at::Tensor& tensor) {
  return static_cast<A*>(tensor.data_ptr());
}

inline double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

// Relative to the largest value. f32: a few roundings; bf16: the neighbouring number.
template <typename A>
void expect_close(const at::Tensor& device, const at::Tensor& host) {
  const double limit = std::is_same_v<A, float> ? 4e-6 : 8e-3;
  EXPECT_LE(largest_difference(device, host), limit * host.to(at::kDouble).abs().max().item<double>());
}

}  // namespace magister::gpu::kernels_test
