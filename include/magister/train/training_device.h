// Where the passes of a training compute: on the CPU, in the weights themselves, or by a GPU's code on the GPU of this rank - or on the host,
// for tests - on weights that stand there. What is left of a training is the same on both ways: sums, optimizer and states have the same bits wherever they
// are made.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "magister/device/launch.h"

namespace magister {

class TrainingDevice {
 public:
  // gpu: as queue_of() gives it; nothing: the CPU. On a GPU ATen's operations are deterministic as long as this stands. Local.
  explicit TrainingDevice(const std::optional<gpu::Queue>& gpu);
  ~TrainingDevice();
  TrainingDevice(const TrainingDevice&) = delete;
  TrainingDevice& operator=(const TrainingDevice&) = delete;

  bool has_gpu_code() const { return gpu_.has_value(); }
  at::Device device() const;
  // Passes at once: a GPU's fill it, one after the other.
  int passes_at_once(int num_threads) const { return has_gpu_code() ? 1 : num_threads; }
  const std::optional<gpu::Queue>& queue() const { return gpu_; }

 private:
  std::optional<gpu::Queue> gpu_;
  bool was_deterministic_, filled_memory_;
};

}  // namespace magister
