// CountedBytes: what ATen takes on the host, counted byte by byte: what a device would need for the same.
#pragma once

#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

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
    const std::thread::id thread = std::this_thread::get_id();
    blocks_[place] = {bytes, thread};
    all_.add(bytes);
    by_thread_[thread].add(bytes);
    return {place, place, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }
  std::uint64_t most() const { return all_.most; }
  std::uint64_t now() const { return all_.now; }
  // The most of the blocks that this thread took: where threads are shards, a sum over them that no timing changes.
  std::uint64_t most_of_this_thread() const {
    const std::lock_guard lock(mutex());
    const auto found = by_thread_.find(std::this_thread::get_id());
    return found == by_thread_.end() ? 0 : found->second.most;
  }
  // The most from now on.
  void begin_anew() { all_.most = all_.now; }

 private:
  struct Count {
    void add(std::uint64_t bytes) {
      now += bytes;
      most = std::max(most, now);
    }
    std::uint64_t now = 0, most = 0;
  };
  struct Block {
    std::uint64_t bytes;
    std::thread::id thread;
  };
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
        const auto found = only()->blocks_.find(place);
        if (found != only()->blocks_.end()) {
          only()->all_.now -= found->second.bytes;
          only()->by_thread_[found->second.thread].now -= found->second.bytes;
          only()->blocks_.erase(found);
        }
      }
    }
    std::free(place);
  }
  c10::Allocator* before_;
  std::map<void*, Block> blocks_;
  std::map<std::thread::id, Count> by_thread_;
  Count all_;
};

}  // namespace magister
