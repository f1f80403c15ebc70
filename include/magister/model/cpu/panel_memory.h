// Memory for panels of weights, on huge pages if the system provides them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>

namespace magister {

// Uninitialised.
at::Tensor empty_panels(at::IntArrayRef sizes, at::ScalarType type);

class HostCopy;

// While it stands, empty_panels() of this thread cuts panels from blocks; the last panel of a block frees it. In memory
// of its own, a panel of a few MiB begins and ends in pages of 4 KiB, where one row reads 25 GB/s instead of 33 (Zen
// 4); of a panel of 3 MiB these are a third or more. Panels that are allocated between other buffers leave holes, which
// were a fifth of a small model's memory.
class PanelBlocks {
 public:
  static constexpr std::size_t kBlockBytes = std::size_t{64} << 20;

  // block_bytes: of a block, for which only addresses are taken until it is written.
  explicit PanelBlocks(std::size_t block_bytes = kBlockBytes);
  // Panels are cut from the host's copy while it has room, then as before this object. shared may be nullptr.
  explicit PanelBlocks(std::shared_ptr<HostCopy> shared);
  ~PanelBlocks();
  PanelBlocks(const PanelBlocks&) = delete;
  PanelBlocks& operator=(const PanelBlocks&) = delete;

  // True if the last panels are in the host's copy.
  bool gave_shared() const { return gave_shared_; }

  at::Tensor cut(at::IntArrayRef sizes, at::ScalarType type);

 private:
  PanelBlocks* outer_;
  std::size_t block_bytes_;
  std::shared_ptr<HostCopy> shared_;
  bool only_shares_ = false, gave_shared_ = false;
  std::shared_ptr<std::byte> block_;
  std::size_t used_ = 0, size_ = 0;
};

}  // namespace magister
