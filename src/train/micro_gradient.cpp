#include "magister/train/micro_gradient.h"

#include <ATen/ATen.h>

#include <cmath>
#include <utility>

namespace magister {

MicroGradient::MicroGradient(const FlatLayout& layout, at::Tensor onto)
    : layout_(layout), flat_(std::move(onto)), is_put_(layout.all().size()), adds_(flat_.defined()) {
  if (adds_) return;
  flat_ = at::empty({layout.flat_size()}, at::kFloat);
  // The padding behind each parameter stays 0: norms and updates run over it.
  std::int64_t end = 0;
  const auto clear = [&](std::int64_t to) {
    if (to > end) flat_.narrow(0, end, to - end).zero_();
  };
  for (const TrainParameter& parameter : layout.all()) {
    clear(parameter.offset);
    end = parameter.offset + parameter.count;
  }
  clear(layout.flat_size());
}

void MicroGradient::put(std::size_t parameter, const at::Tensor& gradient) {
  if (is_put_[parameter]) return;
  // While it is in the cache.
  finite_ = finite_ && std::isfinite(gradient.sum().item<double>());
  at::Tensor place = layout_.view(flat_, parameter);
  if (adds_) {
    place.add_(gradient);
  } else {
    place.copy_(gradient);
  }
  is_put_[parameter] = true;
}

}  // namespace magister
