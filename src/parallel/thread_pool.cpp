// Workers spin for a moment and then sleep on a futex. Tiles are claimed one by one from an atomic word that also has
// the number of the run. So a worker that wakes late claims nothing, and no thread waits for a worker that did not
// wake.
#include "magister/parallel/thread_pool.h"

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "magister/core/error.h"

namespace magister {
namespace {

// Longer than the gap between two tile lists of a layer, shorter than a time slice of the scheduler.
constexpr auto kSpin = std::chrono::microseconds(50);
constexpr std::uint64_t kLeftMask = 0xffffffff;

// Turns off ATen's own threading in this thread, because one thread computes the products of a tile. OpenMP keeps the
// setting per thread, so every thread that runs tiles must call this.
void make_library_single_threaded() {
  thread_local bool done = false;
  if (!std::exchange(done, true)) at::set_num_threads(1);
}

template <typename Condition>
bool spin_until(const Condition& condition) {
  const auto begin = std::chrono::steady_clock::now();
  do {
    for (int i = 0; i < 16; ++i) {
      if (condition()) return true;
      __builtin_ia32_pause();
    }
  } while (std::chrono::steady_clock::now() - begin < kSpin);
  return condition();
}

}  // namespace

struct ThreadPool::State {
  // Number of the run (upper half) and of unclaimed tiles (lower half).
  alignas(64) std::atomic<std::uint64_t> ticket{0};
  alignas(64) std::atomic<std::uint32_t> unfinished{0};  // tiles that are not done
  alignas(64) std::atomic<std::uint32_t> wake{0};        // workers sleep on it
  // Written by run() while unfinished == 0; read only by threads that have claimed a tile.
  std::uint32_t num_tiles = 0;
  const std::function<void(std::int64_t, int)>* tile = nullptr;
  std::mutex error_mutex;
  std::exception_ptr error;
  std::int64_t error_tile = 0;
  std::atomic<bool> running{false}, stop{false};
  bool may_spin = false;
  std::vector<std::thread> workers;

  bool claim(std::int64_t& index) {
    std::uint64_t seen = ticket.load(std::memory_order_acquire);
    while ((seen & kLeftMask) != 0) {
      if (ticket.compare_exchange_weak(seen, seen - 1, std::memory_order_acq_rel)) {
        index = static_cast<std::int64_t>(num_tiles - (seen & kLeftMask));
        return true;
      }
    }
    return false;
  }

  // Removes the unclaimed tiles; returns their number.
  std::uint32_t drop_the_rest() {
    std::uint64_t seen = ticket.load(std::memory_order_acquire);
    while (!ticket.compare_exchange_weak(seen, seen & ~kLeftMask, std::memory_order_acq_rel)) {
    }
    return static_cast<std::uint32_t>(seen & kLeftMask);
  }

  void run_tiles(int thread_index) {
    std::int64_t index = 0;
    while (claim(index)) {
      std::uint32_t done = 1;
      try {
        (*tile)(index, thread_index);
      } catch (...) {
        done += drop_the_rest();
        const std::lock_guard lock(error_mutex);
        if (!error || index < error_tile) {
          error = std::current_exception();
          error_tile = index;
        }
      }
      if (unfinished.fetch_sub(done, std::memory_order_acq_rel) == done) unfinished.notify_one();
    }
  }

  void work(int thread_index) {
    make_library_single_threaded();
    for (;;) {
      const std::uint32_t seen = wake.load(std::memory_order_acquire);
      if (stop.load(std::memory_order_acquire)) return;
      run_tiles(thread_index);
      if (may_spin && spin_until([&] { return wake.load(std::memory_order_acquire) != seen; })) continue;
      wake.wait(seen, std::memory_order_acquire);
    }
  }

  void wake_workers(std::uint32_t wanted) {
    wake.fetch_add(1, std::memory_order_acq_rel);
    if (wanted >= workers.size()) {
      wake.notify_all();
    } else {
      for (std::uint32_t i = 0; i < wanted; ++i) wake.notify_one();
    }
  }

  void stop_workers() {
    stop.store(true, std::memory_order_release);
    wake_workers(static_cast<std::uint32_t>(workers.size()));
    for (std::thread& worker : workers) worker.join();
    workers.clear();
  }
};

ThreadPool::ThreadPool(int num_threads) : state_(std::make_unique<State>()), num_threads_(num_threads) {
  MAGISTER_CHECK(num_threads >= 1, ExitCode::kInternal,
                 "a thread pool of {} threads (no thread would compute); report this", num_threads);
  make_library_single_threaded();
  state_->may_spin = num_threads <= usable_cores();
  try {
    for (int i = 1; i < num_threads; ++i) state_->workers.emplace_back([state = state_.get(), i] { state->work(i); });
  } catch (const std::system_error& error) {
    state_->stop_workers();
    fail(ExitCode::kConfig,
         "thread {} of {} could not be started: {} (a limit of the system or of the batch job); raise `ulimit -u` or "
         "use more ranks",
         state_->workers.size() + 1, num_threads, error.what());
  }
}

ThreadPool::~ThreadPool() { state_->stop_workers(); }

void ThreadPool::run(std::int64_t num_tiles, const std::function<void(std::int64_t, int)>& tile) {
  State& state = *state_;
  MAGISTER_CHECK(num_tiles >= 0 && num_tiles <= static_cast<std::int64_t>(kLeftMask), ExitCode::kInternal,
                 "a run of {} tiles (the pool counts to 2^32); report this", num_tiles);
  MAGISTER_CHECK(
      !state.running.exchange(true, std::memory_order_acquire), ExitCode::kInternal,
      "a thread pool was used inside its own tile or by two threads (it would wait for itself); report this");
  struct Leave {  // NOLINT(cppcoreguidelines-special-member-functions): of this scope alone, never copied
    std::atomic<bool>& running;
    ~Leave() { running.store(false, std::memory_order_release); }
  } const leave{state.running};
  make_library_single_threaded();
  if (num_threads_ == 1 || num_tiles <= 1) {
    for (std::int64_t i = 0; i < num_tiles; ++i) tile(i, 0);
    return;
  }
  const auto count = static_cast<std::uint32_t>(num_tiles);
  state.tile = &tile;
  state.num_tiles = count;
  state.unfinished.store(count, std::memory_order_relaxed);
  const std::uint64_t run_number = (state.ticket.load(std::memory_order_relaxed) >> 32) + 1;
  state.ticket.store(run_number << 32 | count, std::memory_order_release);
  state.wake_workers(count - 1);
  state.run_tiles(0);
  const auto all_done = [&] { return state.unfinished.load(std::memory_order_acquire) == 0; };
  if (!state.may_spin || !spin_until(all_done)) {
    for (std::uint32_t left; (left = state.unfinished.load(std::memory_order_acquire)) != 0;)
      state.unfinished.wait(left);
  }
  if (state.error) std::rethrow_exception(std::exchange(state.error, nullptr));
}

void on_threads(ThreadPool* pool, std::int64_t num_tiles, const std::function<void(std::int64_t)>& tile) {
  if (pool == nullptr) {
    for (std::int64_t i = 0; i < num_tiles; ++i) tile(i);
    return;
  }
  // Inference mode is a setting of the thread; without it ATen refuses to write into tensors that were created in it.
  const bool inference = c10::InferenceMode::is_enabled();
  pool->run(num_tiles, [&](std::int64_t index, int) {
    const c10::InferenceMode mode(inference);
    tile(index);
  });
}

}  // namespace magister
