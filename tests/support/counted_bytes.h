// CountedBytes: what ATen takes on the host, counted byte by byte: what a device would need for the same.
#pragma once

#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

namespace magister {

// Every byte that ATen has on the host while it is there, and the most of them at a time.
class CountedBytes final : public c10::Allocator {
 public:
  CountedBytes() : before_(c10::GetCPUAllocator()) {
    only() = this;
    c10::SetCPUAllocator(this, 1);
  }
  ~CountedBytes() override {
    c10::SetCPUAllocator(before_, 1);
    only() = nullptr;
  }
  c10::DataPtr allocate(std::size_t bytes) override {
    void* const place = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    const std::lock_guard lock(mutex());
    sizes_[place] = bytes;
    now_ += bytes;
    most_ = std::max(most_, now_);
    return {place, place, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }
  std::uint64_t most() const { return most_; }
  std::uint64_t now() const { return now_; }
  // The most from now on.
  void begin_anew() { most_ = now_; }

 private:
  static CountedBytes*& only() {
    static CountedBytes* counted = nullptr;
    return counted;
  }
  static std::mutex& mutex() {
    static std::mutex mutex;
    return mutex;
  }
  static void release(void* place) {
    {
      const std::lock_guard lock(mutex());
      if (only() != nullptr) {
        const auto found = only()->sizes_.find(place);
        if (found != only()->sizes_.end()) {
          only()->now_ -= found->second;
          only()->sizes_.erase(found);
        }
      }
    }
    std::free(place);
  }
  c10::Allocator* before_;
  std::map<void*, std::size_t> sizes_;
  std::uint64_t now_ = 0, most_ = 0;
};

}  // namespace magister
