// See training_device.h.
#include "magister/train/training_device.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>

#include "magister/device/upload.h"

namespace magister {

// Without atomics index_add and the backward pass of attention have the same bits each time. An operation that is not
// known to be deterministic then throws, instead of giving other bits. New memory need not be filled for that, because
// everything that is read was written.
TrainingDevice::TrainingDevice(const std::optional<gpu::Queue>& gpu)
    : gpu_(gpu),
      was_deterministic_(at::globalContext().deterministicAlgorithms()),
      filled_memory_(at::globalContext().deterministicFillUninitializedMemory()) {
  if (!has_gpu_code()) return;
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  at::globalContext().setDeterministicFillUninitializedMemory(false);
}

TrainingDevice::~TrainingDevice() {
  if (!has_gpu_code()) return;
  at::globalContext().setDeterministicAlgorithms(was_deterministic_, false);
  at::globalContext().setDeterministicFillUninitializedMemory(filled_memory_);
}

at::Device TrainingDevice::device() const { return has_gpu_code() ? device_of(*gpu_) : at::Device(at::kCPU); }

}  // namespace magister
