// A ring of blocks; see staged_upload.h.
#include "magister/device/staged_upload.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <utility>

#include "magister/core/error.h"

namespace magister {

namespace {

constexpr int kMostBlocks = 26;  // 208 MiB; pinning four blocks takes about a millisecond

}  // namespace

StagedUpload::StagedUpload(at::Device device, int threads, std::int64_t block_bytes)
    : device_(device), block_bytes_(block_bytes) {
  const auto options = at::TensorOptions().dtype(at::kByte).pinned_memory(device.is_cuda());
  for (int i = 0; i < std::min(2 * threads + 2, kMostBlocks); ++i)
    blocks_.push_back({at::empty({block_bytes}, options), GpuEvent()});
}

StagedUpload::Block StagedUpload::take() {
  std::unique_lock lock(mutex_);
  given_back_.wait(lock, [this] { return !blocks_.empty(); });
  Block block = std::move(blocks_.front());
  blocks_.pop_front();
  return block;
}

void StagedUpload::give_back(Block block) {
  {
    const std::lock_guard lock(mutex_);
    blocks_.push_back(std::move(block));
  }
  given_back_.notify_one();
}

void StagedUpload::send(const at::Tensor& there, const std::function<void(const at::Tensor& block)>& fill) {
  MAGISTER_ASSERT(there.is_contiguous() && there.device() == device_);
  const auto num_bytes = static_cast<std::int64_t>(there.nbytes());
  if (num_bytes == 0) return;
  const c10::DeviceGuard guard(device_);
  if (num_bytes > block_bytes_) {
    const at::Tensor own = at::empty(there.sizes(), there.options().device(at::kCPU));
    fill(own);
    there.copy_(own);
    return;
  }
  Block block = take();
  try {
    block.sent.wait();
    const at::Tensor numbers = block.bytes.narrow(0, 0, num_bytes).view(there.scalar_type()).view(there.sizes());
    fill(numbers);
    there.copy_(numbers, /*non_blocking=*/true);
    block.sent = device_.is_cuda() ? GpuEvent::record() : GpuEvent();
  } catch (...) {
    give_back(std::move(block));
    throw;
  }
  give_back(std::move(block));
}

}  // namespace magister
