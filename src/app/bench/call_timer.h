// CallTimer: the time of each call of a pass on the device. Our own kernels report themselves (gpu::LaunchWatch), and
// operations of ATen are reported by its RecordFunction; a time stamp is recorded in the stream before and after each
// call. Calls inside another call count to the outer one.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "magister/device/launch_watch.h"

namespace magister {

struct TimedCall {
  std::string name;                  // a kernel's kName, or an operation's name in ATen: aten::mm
  bool of_head = false;              // between head_begins() and finish()
  std::int64_t M = 0, N = 0, K = 0;  // for products [M, K] x [K, N] of ATen and cuBLASLt
  double begin_ms = 0, end_ms = 0;   // since the begin of the first call
};

// At most one per thread; it sees the calls of its own thread between start() and finish().
class CallTimer final : public gpu::LaunchWatch {
 public:
  explicit CallTimer(bool on_host);
  ~CallTimer() override;
  CallTimer(const CallTimer&) = delete;
  CallTimer& operator=(const CallTimer&) = delete;

  void start();
  void head_begins() { of_head_ = true; }
  // Waits for the device. The times do not contain the cost of two stamps with nothing between them.
  std::vector<TimedCall> finish();

  void begin(const char* name, const gpu::WatchedProduct& product) override;
  void end() override;

 private:
  struct Stamps;
  struct Observer;  // receives ATen's calls
  void open(TimedCall call);
  void close();
  void stop() noexcept;
  double empty_call_ms();

  bool on_host_, of_head_ = false;
  int depth_ = 0;
  std::uint64_t observer_ = 0;  // ATen's handle; 0: not installed
  std::vector<TimedCall> calls_;
  std::vector<Stamps> stamps_;  // of calls_
};

}  // namespace magister
