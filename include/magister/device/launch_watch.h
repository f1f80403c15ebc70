// Who is told of every kernel that this thread starts: benches that time them. Work that starts otherwise (a library called by hand) tells
// of itself by a WatchedLaunch around it. Nobody is told unless a watch is set, and then a start costs the reading of a pointer.
#pragma once

#include <cstdint>

namespace magister::gpu {

// A product of a library's, [M, K] x [K, N]; zeros of anything else.
struct WatchedProduct {
  std::int64_t M = 0, N = 0, K = 0;
};

class LaunchWatch {
 public:
  virtual ~LaunchWatch() = default;
  // Before the start, by the kernel's kName or the library's function, and after it. Not nested.
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
