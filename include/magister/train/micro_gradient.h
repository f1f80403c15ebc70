// The gradient of one micro-batch on its way into a flat tensor. Each parameter's is put once and whole: it may therefore go on top of what the
// other half of a pair has left (GradientTree), with the bits of a sum that is made later, and nothing is set to zero first.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "magister/train/parameters.h"

namespace magister {

class MicroGradient {
 public:
  // layout is kept by reference. onto: undefined, or a flat gradient that this one is added to. Local.
  MicroGradient(const FlatLayout& layout, at::Tensor onto);

  // gradient: f32, in the parameter's shape. What was put before a pass ran out of memory is not put again by the next, which has the same bits.
  void put(std::size_t parameter, const at::Tensor& gradient);
  bool finite() const { return finite_; }  // all that was put
  // Where a parameter's gradient was not put (after a loss that was not finite) the numbers say nothing.
  at::Tensor take() { return std::move(flat_); }

 private:
  const FlatLayout& layout_;
  at::Tensor flat_;
  std::vector<bool> is_put_;  // by parameter
  bool adds_, finite_ = true;
};

}  // namespace magister
