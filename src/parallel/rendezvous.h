// A meeting point of the shards of one rank: a barrier at which the last thread to arrive runs an action for all, and
// which a failing shard breaks, so that the others do not wait for ever. Waiting threads spin for a moment if each has
// a core, then sleep.
#pragma once

#include <atomic>
#include <cstdint>

#include "magister/parallel/process_group.h"

namespace magister {

class Rendezvous {
 public:
  Rendezvous(int num_threads, bool may_spin) : num_threads_(num_threads), may_spin_(may_spin) {}

  // The last thread to arrive runs last_one() while the others wait; then all continue. Throws ShardAbandoned in all
  // threads if one has left. An exception of last_one() goes to its own thread; the others throw ShardAbandoned.
  // Collective over the threads.
  template <typename Action>
  void meet(const Action& last_one) {
    const std::uint32_t round = round_.load(std::memory_order_acquire);
    if ((round & kAbandoned) != 0) throw ShardAbandoned();
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 < num_threads_) return wait_for_others(round);
    arrived_.store(0, std::memory_order_relaxed);
    try {
      last_one();
    } catch (...) {
      abandon();
      throw;
    }
    round_.fetch_add(kStep, std::memory_order_acq_rel);
    round_.notify_all();
  }
  void meet() {
    meet([] {});
  }

  void abandon() noexcept {
    round_.fetch_or(kAbandoned, std::memory_order_acq_rel);
    round_.notify_all();
  }

 private:
  static constexpr std::uint32_t kAbandoned = 1, kStep = 2;
  static constexpr int kSpins = 500;  // about 20 us

  void wait_for_others(std::uint32_t round) {
    std::uint32_t now = round_.load(std::memory_order_acquire);
    for (int i = 0; may_spin_ && now == round && i < kSpins; ++i) {
      __builtin_ia32_pause();
      now = round_.load(std::memory_order_acquire);
    }
    while (now == round) {
      round_.wait(round, std::memory_order_acquire);
      now = round_.load(std::memory_order_acquire);
    }
    // The meeting was complete; a shard that left after it does not matter.
    if ((now | kAbandoned) == (round | kAbandoned)) throw ShardAbandoned();
  }

  const int num_threads_;
  const bool may_spin_;
  std::atomic<int> arrived_{0};
  std::atomic<std::uint32_t> round_{0};  // number of complete meetings * 2 + kAbandoned
};

}  // namespace magister
