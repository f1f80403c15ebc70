// The copies where the host computes in place of a GPU, and the choice between the two kinds. See copy_queue.h.
#include "magister/device/copy_queue.h"

#include <ATen/ATen.h>

#include <cstring>
#include <mutex>
#include <vector>

#include "device/copy_queue_cuda.h"
#include "magister/core/error.h"

namespace magister {
namespace {

class LateCopies final : public CopyQueue {
 public:
  at::Tensor take(std::int64_t size) override { return at::empty({size}, at::kFloat); }
  void start(std::span<const Copy> copies) override {
    const std::lock_guard lock(mutex_);
    for (const Copy& copy : copies) {
      MAGISTER_ASSERT(copy.from.is_contiguous() && copy.to.is_contiguous() && copy.from.nbytes() == copy.to.nbytes());
      queued_.push_back(copy);
    }
  }
  void hold_default() override { wait(); }
  void wait() override {
    const std::lock_guard lock(mutex_);
    for (const Copy& copy : queued_)
      std::memcpy(copy.to.data_ptr<float>(), copy.from.const_data_ptr<float>(), copy.from.nbytes());
    queued_.clear();
  }

 private:
  std::mutex mutex_;
  std::vector<Copy> queued_;
};

}  // namespace

std::unique_ptr<CopyQueue> make_copy_queue(const gpu::Queue& queue) {
  if (queue.on_host()) return std::make_unique<LateCopies>();
  return make_cuda_copy_queue(queue.device);
}

}  // namespace magister
