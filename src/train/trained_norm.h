// A norm of a block's input or output, as autograd follows it.
// Legend: T packed tokens, D hidden.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

#include "train/gpu_products.h"

namespace magister {

// An RMS norm, or if centred a layer norm.
struct TrainedNorm {
  at::Tensor weight;  // undefined: there is no norm
  double eps;
  bool centred = false;
  at::Tensor bias{};  // of a centred norm; undefined: none

  at::Tensor operator()(const at::Tensor& x) const;
  // The rows that products read, in GPU code: recomputed from the stream.
  RowsFrom rows_from(const at::Tensor& normed_TD, const at::Tensor& stream_TD) const;
  // Returns the normed stream, and the stream itself for what is added to it.
  std::pair<at::Tensor, at::Tensor> of_stream(const at::Tensor& x_TD, at::ScalarType to) const;
};

}  // namespace magister
