// GpuStamp: the time at which the device finishes all work that was on the default stream when the stamp was recorded.
// The difference of two stamps is the device time of the work between them. In a build without CUDA, record() throws
// Error(kConfig).
#pragma once

#include <utility>

namespace magister {

class GpuStamp {
 public:
  GpuStamp() = default;
  static GpuStamp record();
  ~GpuStamp();
  GpuStamp(GpuStamp&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  GpuStamp& operator=(GpuStamp&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  // Both stamps must be recorded. Waits until the device reaches this one. The resolution is about half a microsecond.
  double milliseconds_since(const GpuStamp& earlier) const;

 private:
  void* event_ = nullptr;  // cudaEvent_t
};

}  // namespace magister
