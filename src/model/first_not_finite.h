// Finds the first place of a pass that gives NaN or infinity, for messages. Local.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace magister {

class FirstNotFinite {
 public:
  // num_layers: after them comes the last norm.
  explicit FirstNotFinite(std::int64_t num_layers) : num_layers_(num_layers) {}

  // hidden_TD: the rows after the embeddings (-1), after a layer, or after the last norm (num_layers), in the order of
  // the pass. Waits for the device.
  void look(std::int64_t layer, const at::Tensor& hidden_TD);
  // "the embeddings", "layer 7", "the last norm", or "the head" if all rows so far are finite.
  std::string place() const { return found_.empty() ? "the head" : found_; }

 private:
  std::int64_t num_layers_;
  std::string found_;
};

}  // namespace magister
