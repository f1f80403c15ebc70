// CallTimer: how long each call of a pass takes on the device. Our own kernels tell of themselves (gpu::LaunchWatch), operations of ATen by
// its RecordFunction; a stamp in the stream goes before and after each. What stands inside another call counts to that one.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "magister/device/launch_watch.h"

namespace magister {

struct TimedCall {
  std::string name;                  // a kernel's kName, or an operation as ATen calls it: aten::mm
  bool of_head = false;              // between head_begins() and finish()
  std::int64_t M = 0, N = 0, K = 0;  // of ATen's and cuBLASLt's products [M, K] x [K, N]
  double begin_ms = 0, end_ms = 0;   // since the first call's begin
};

// One at a time in a thread; it sees the calls of its own thread between start() and finish().
class CallTimer final : public gpu::LaunchWatch {
 public:
  explicit CallTimer(bool on_host);
  ~CallTimer() override;
  CallTimer(const CallTimer&) = delete;
  CallTimer& operator=(const CallTimer&) = delete;

  void start();
  void head_begins() { of_head_ = true; }
  // Waits for the device. Without what two stamps with nothing between them cost.
  std::vector<TimedCall> finish();

  void begin(const char* name, const gpu::WatchedProduct& product) override;
  void end() override;

 private:
  struct Stamps;
  struct Observer;  // ATen's side
  void open(TimedCall call);
  void close();
  void stop() noexcept;
  double empty_call_ms();

  bool on_host_, of_head_ = false;
  int depth_ = 0;
  std::uint64_t observer_ = 0;  // ATen's handle, 0: not installed
  std::vector<TimedCall> calls_;
  std::vector<Stamps> stamps_;  // of calls_
};

}  // namespace magister
