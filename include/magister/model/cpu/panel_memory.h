// Memory for panels of weights, on huge pages if the system provides them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>

namespace magister {

// Uninitialised.
at::Tensor empty_panels(at::IntArrayRef sizes, at::ScalarType type);

// While it stands, empty_panels() of this thread cuts panels from blocks of 64 MiB; the last panel of a block frees it.
// It is for many panels of a few MiB, as a layer's experts are. In memory of its own, such a panel begins and ends in
// pages of 4 KiB, where one row reads 25 GB/s instead of 33 (Zen 4); of a panel of 3 MiB these are a third or more.
class PanelBlocks {
 public:
  PanelBlocks();
  ~PanelBlocks();
  PanelBlocks(const PanelBlocks&) = delete;
  PanelBlocks& operator=(const PanelBlocks&) = delete;

  at::Tensor cut(at::IntArrayRef sizes, at::ScalarType type);

 private:
  PanelBlocks* outer_;
  std::shared_ptr<std::byte> block_;
  std::size_t used_ = 0, size_ = 0;
};

}  // namespace magister
