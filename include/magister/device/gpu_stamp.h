// GpuStamp: the moment at which the device has done everything that this thread's stream held when it was recorded. The difference of two
// is the time of the work between them, as the device sees it. In a build without CUDA recording throws Error(kConfig).
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
  // Both are recorded; waits for this one. Resolution about half a microsecond.
  double milliseconds_since(const GpuStamp& earlier) const;

 private:
  void* event_ = nullptr;  // cudaEvent_t
};

}  // namespace magister
