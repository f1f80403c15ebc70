// The formulas of activation.h by ATen's functions.
#include "magister/model/plain_activation.h"

#include <ATen/ATen.h>

namespace magister {

at::Tensor activated(const at::Tensor& x, Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return at::silu(x);
    case Activation::kRelu:
      return at::relu(x);
    case Activation::kRelu2:
      return at::relu(x).square();
    case Activation::kGelu:
      return at::gelu(x, "none");
    case Activation::kGeluTanh:
      break;
  }
  return at::gelu(x, "tanh");
}

}  // namespace magister
