// See trained_norm.h.
#include "train/trained_norm.h"

#include <ATen/ATen.h>

#include "train/fused_ops.h"
#include "train/gpu_ops.h"

namespace magister {

at::Tensor TrainedNorm::operator()(const at::Tensor& x) const {
  if (!weight.defined()) return x;
  return centred ? at::layer_norm(x, weight.sizes(), weight, bias, eps) : fused_rms_norm(x, weight, eps);
}

RowsFrom TrainedNorm::rows_from(const at::Tensor& normed_TD, const at::Tensor& stream_TD) const {
  if (normed_TD.scalar_type() != at::kBFloat16) return {};
  return {RowsFrom::kNorm, Activation::kSilu, stream_TD.detach(), weight.detach(), eps};
}

std::pair<at::Tensor, at::Tensor> TrainedNorm::of_stream(const at::Tensor& x_TD, at::ScalarType to) const {
  if (!weight.defined() || centred || !GpuCodeScope::is_on()) return {(*this)(x_TD), x_TD};
  return gpu_norm_of_stream(x_TD, weight, eps, to);
}

}  // namespace magister
