// The device that computes the passes of a training: the CPU, on the weights themselves, or GPU code on this rank's GPU
// (or on the host, for tests), on weights that are there. The rest of a training is the same in both cases: sums,
// optimizer and states have the same bits wherever they are made.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "magister/device/launch.h"

namespace magister {

class TrainingDevice {
 public:
  // gpu: as given by queue_of(); nothing: the CPU. With GPU code ATen's operations are deterministic while this object
  // exists. Local.
  explicit TrainingDevice(const std::optional<gpu::Queue>& gpu);
  ~TrainingDevice();
  TrainingDevice(const TrainingDevice&) = delete;
  TrainingDevice& operator=(const TrainingDevice&) = delete;

  bool has_gpu_code() const { return gpu_.has_value(); }
  at::Device device() const;
  // Passes at once: one pass fills a GPU.
  int passes_at_once(int num_threads) const { return has_gpu_code() ? 1 : num_threads; }
  const std::optional<gpu::Queue>& queue() const { return gpu_; }

 private:
  std::optional<gpu::Queue> gpu_;
  bool was_deterministic_, filled_memory_;
};

}  // namespace magister
