// Products through cuBLAS (at::mm); on the host through ATen's CPU kernels.
#include "model/gpu/gpu_linear.h"

#include <ATen/ATen.h>

namespace magister::gpu {

std::uint64_t GpuLinear::num_bytes() const { return weight_NK.nbytes() + (bias_N.defined() ? bias_N.nbytes() : 0); }

GpuLinear to_device(const Linear& linear, at::Device device) {
  GpuLinear out;
  out.weight_NK = linear.weight_NK.to(device);
  if (linear.bias_N.defined()) out.bias_N = linear.bias_N.to(device);
  out.inputs = linear.in_features();
  out.outputs = linear.out_features();
  return out;
}

at::Tensor product(const GpuLinear& linear, const at::Tensor& x_MK, at::ScalarType out_type, const Queue& queue) {
  const at::Tensor weight_KN = linear.weight_NK.t();
  at::Tensor out_MN;
  if (out_type == x_MK.scalar_type()) {
    out_MN = at::mm(x_MK, weight_KN);
  } else if (queue.on_host()) {
    out_MN = at::mm(x_MK.to(out_type), weight_KN.to(out_type));
  } else {
    out_MN = at::mm(x_MK, weight_KN, out_type);
  }
  if (linear.bias_N.defined()) out_MN.add_(linear.bias_N);
  return out_MN;
}

}  // namespace magister::gpu
