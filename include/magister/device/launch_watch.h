// Notifies a watch of every kernel that this thread starts; used by benchmarks that time kernels. Code that starts work
// in another way (by calling a library) puts a WatchedLaunch around it. Without a watch the cost of a start is reading
// one pointer.
#pragma once

#include <cstdint>

namespace magister::gpu {

// A product computed by a library, [M, K] x [K, N]; all zeros for other work.
struct WatchedProduct {
  std::int64_t M = 0, N = 0, K = 0;
};

class LaunchWatch {
 public:
  virtual ~LaunchWatch() = default;
  // Called before and after the start. name: the kernel's kName, or the library function. Calls are not nested.
  virtual void begin(const char* name, const WatchedProduct& product) = 0;
  virtual void end() = 0;
};

inline thread_local LaunchWatch* launch_watch = nullptr;

class WatchedLaunch {
 public:
  explicit WatchedLaunch(const char* name, const WatchedProduct& product = {}) {
    if (watch_ != nullptr) watch_->begin(name, product);
  }
  ~WatchedLaunch() {
    if (watch_ != nullptr) watch_->end();
  }
  WatchedLaunch(const WatchedLaunch&) = delete;
  WatchedLaunch& operator=(const WatchedLaunch&) = delete;

 private:
  LaunchWatch* watch_ = launch_watch;
};

}  // namespace magister::gpu
