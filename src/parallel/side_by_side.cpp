// See side_by_side.h.
#include "magister/parallel/side_by_side.h"

#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "magister/parallel/process_group.h"

namespace magister {
namespace {

class FirstError {
 public:
  void take(std::exception_ptr error, bool is_echo) {
    const std::lock_guard lock(mutex_);
    if (error_ != nullptr && (is_echo || !is_echo_)) return;
    error_ = std::move(error);
    is_echo_ = is_echo;
  }
  void rethrow() const {
    if (error_ != nullptr) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
  bool is_echo_ = false;  // ShardAbandoned: a consequence of another shard's error
};

}  // namespace

void run_side_by_side(std::size_t count, const std::function<void(std::size_t index)>& body) {
  FirstError error;
  const auto live = [&](std::size_t i) {
    try {
      body(i);
    } catch (const ShardAbandoned&) {
      error.take(std::current_exception(), true);
    } catch (...) {
      error.take(std::current_exception(), false);
    }
  };
  // No body starts before all threads exist: otherwise a shard would wait for ever for one whose thread could not be
  // started.
  enum Gate { kClosed, kOpen, kGivenUp };
  std::atomic<Gate> gate{kClosed};
  std::vector<std::thread> threads;
  const auto set_gate = [&](Gate to) {
    gate = to;
    gate.notify_all();
  };
  const auto join_all = [&] {
    for (std::thread& thread : threads) thread.join();
  };
  try {
    for (std::size_t i = 1; i < count; ++i) {
      threads.emplace_back([&, i] {
        gate.wait(kClosed);
        if (gate == kOpen) live(i);
      });
    }
  } catch (...) {
    set_gate(kGivenUp);
    join_all();
    throw;
  }
  set_gate(kOpen);
  live(0);
  join_all();
  error.rethrow();
}

}  // namespace magister
