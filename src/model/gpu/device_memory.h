// Memory of models on a device that returns to the driver when the last user is done: the next task must have it.
#pragma once

#include <memory>
#include <utility>

#include "magister/device/gpu.h"
#include "magister/device/launch.h"

namespace magister::gpu {

// As the first member it is destroyed last, when the allocator has the memory of weights and buffers back.
struct GivesMemoryBack {  // NOLINT(cppcoreguidelines-special-member-functions): a member, never copied
  Queue queue;
  ~GivesMemoryBack() {
    if (!queue.on_host()) release_idle_gpu_memory();
  }
};

// Weights whose memory returns to the driver when the last user releases them.
template <typename Weights>
std::shared_ptr<Weights> shared_on_device(Weights weights, const Queue& queue) {
  return {new Weights(std::move(weights)), [queue](const Weights* unused) {
            delete unused;
            if (!queue.on_host()) release_idle_gpu_memory();
          }};
}

}  // namespace magister::gpu
