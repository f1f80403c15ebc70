// See first_not_finite.h.
#include "model/first_not_finite.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

namespace magister {

void FirstNotFinite::look(std::int64_t layer, const at::Tensor& hidden_TD) {
  if (!found_.empty() || at::isfinite(hidden_TD).all().item<bool>()) return;
  found_ = layer < 0 ? "the embeddings" : layer < num_layers_ ? fmt::format("layer {}", layer) : "the last norm";
}

}  // namespace magister
