// An activation function in plain ATen code, which autograd can follow.
#pragma once

#include <ATen/core/Tensor.h>

#include "magister/model/activation.h"

namespace magister {

at::Tensor activated(const at::Tensor& x, Activation activation);

}  // namespace magister
