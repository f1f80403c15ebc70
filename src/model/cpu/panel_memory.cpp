// Huge pages reduce address translation for the weights: 1 to 3 % of a product. They are only a hint.
#include "magister/model/cpu/panel_memory.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <utility>

#include "magister/core/huge_pages.h"
#include "magister/model/host_copy.h"

namespace magister {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20, kCacheLine = 64;

thread_local PanelBlocks* blocks = nullptr;

std::size_t rounded_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

at::Tensor empty_panels(at::IntArrayRef sizes, at::ScalarType type) {
  if (blocks != nullptr) return blocks->cut(sizes, type);
  at::Tensor tensor = at::empty(sizes, at::TensorOptions().dtype(type));
  prefer_huge_pages(tensor.data_ptr(), tensor.nbytes());
  return tensor;
}

PanelBlocks::PanelBlocks(std::size_t block_bytes) : outer_(std::exchange(blocks, this)), block_bytes_(block_bytes) {}

PanelBlocks::PanelBlocks(std::shared_ptr<HostCopy> shared)
    : outer_(std::exchange(blocks, this)), block_bytes_(kBlockBytes), shared_(std::move(shared)), only_shares_(true) {}

PanelBlocks::~PanelBlocks() { blocks = outer_; }

at::Tensor PanelBlocks::cut(at::IntArrayRef sizes, at::ScalarType type) {
  const std::size_t bytes =
      rounded_up(static_cast<std::size_t>(c10::multiply_integers(sizes)) * c10::elementSize(type), kCacheLine);
  std::byte* const of_host = shared_ != nullptr ? shared_->cut(bytes) : nullptr;
  gave_shared_ = of_host != nullptr;
  if (gave_shared_) return at::from_blob(of_host, sizes, [shared = shared_](void*) {}, at::TensorOptions().dtype(type));
  if (only_shares_ && outer_ != nullptr) return outer_->cut(sizes, type);
  if (bytes > size_ - used_) {
    size_ = rounded_up(std::max(bytes, block_bytes_), kHugePage);
    used_ = 0;
    block_.reset(static_cast<std::byte*>(std::aligned_alloc(kHugePage, size_)),
                 [](std::byte* data) { std::free(data); });
    if (block_ == nullptr) throw std::bad_alloc();
    prefer_huge_pages(block_.get(), size_);
  }
  std::byte* const data = block_.get() + std::exchange(used_, used_ + bytes);
  return at::from_blob(data, sizes, [block = block_](void*) {}, at::TensorOptions().dtype(type));
}

}  // namespace magister
