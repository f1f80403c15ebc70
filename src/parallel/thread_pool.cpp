// Worker threads that spin a little and then sleep. Tiles are drawn from one atomic counter.
#include "magister/parallel/thread_pool.h"

#include <ATen/Parallel.h>
#include <sched.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "magister/core/error.h"

namespace magister {
namespace {

// About 20 us: longer than the gap between two tile lists of a layer, shorter than a scheduler's time slice.
constexpr int kSpins = 2000;

// The library's own threading off, in this thread: products of a tile are one thread's.
void single_threaded_library() { at::set_num_threads(1); }

}  // namespace

struct ThreadPool::State {
  std::mutex mutex;
  std::condition_variable work_ready, work_done;
  std::atomic<std::uint64_t> generation{0};
  std::atomic<std::int64_t> next_tile{0};
  std::atomic<int> busy{0};
  std::int64_t num_tiles = 0;
  const std::function<void(std::int64_t, int)>* tile = nullptr;
  std::exception_ptr error;
  bool stop = false;
  bool may_spin = false;
  std::vector<std::thread> workers;

  void draw_tiles(int thread_index) {
    for (;;) {
      const std::int64_t index = next_tile.fetch_add(1, std::memory_order_relaxed);
      if (index >= num_tiles) return;
      try {
        (*tile)(index, thread_index);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
        next_tile.store(num_tiles, std::memory_order_relaxed);
      }
    }
  }

  void work(int thread_index) {
    single_threaded_library();
    std::uint64_t seen = 0;
    for (;;) {
      for (int i = 0; may_spin && i < kSpins && generation.load(std::memory_order_acquire) == seen; ++i) {
        __builtin_ia32_pause();
      }
      {
        std::unique_lock lock(mutex);
        work_ready.wait(lock, [&] { return stop || generation.load(std::memory_order_relaxed) != seen; });
        if (stop) return;
        seen = generation.load(std::memory_order_relaxed);
      }
      draw_tiles(thread_index);
      const std::lock_guard lock(mutex);
      if (busy.fetch_sub(1, std::memory_order_acq_rel) == 1) work_done.notify_one();
    }
  }
};

ThreadPool::ThreadPool(int num_threads) : state_(std::make_unique<State>()), num_threads_(num_threads) {
  MAGISTER_CHECK(num_threads >= 1, ExitCode::kInternal, "a thread pool of {} threads (nobody would compute); report this",
                 num_threads);
  single_threaded_library();
  state_->may_spin = num_threads <= usable_cores();
  for (int i = 1; i < num_threads; ++i) state_->workers.emplace_back([state = state_.get(), i] { state->work(i); });
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->work_ready.notify_all();
  for (std::thread& worker : state_->workers) worker.join();
}

void ThreadPool::run(std::int64_t num_tiles, const std::function<void(std::int64_t, int)>& tile) {
  State& state = *state_;
  if (num_threads_ == 1 || num_tiles <= 1) {
    for (std::int64_t i = 0; i < num_tiles; ++i) tile(i, 0);
    return;
  }
  {
    const std::lock_guard lock(state.mutex);
    state.tile = &tile;
    state.num_tiles = num_tiles;
    state.next_tile.store(0, std::memory_order_relaxed);
    state.error = nullptr;
    state.busy.store(num_threads_ - 1, std::memory_order_relaxed);
    state.generation.fetch_add(1, std::memory_order_release);
  }
  state.work_ready.notify_all();
  state.draw_tiles(0);
  for (int i = 0; state.may_spin && i < kSpins && state.busy.load(std::memory_order_acquire) != 0; ++i) {
    __builtin_ia32_pause();
  }
  std::unique_lock lock(state.mutex);
  state.work_done.wait(lock, [&] { return state.busy.load(std::memory_order_acquire) == 0; });
  if (state.error) std::rethrow_exception(std::exchange(state.error, nullptr));
}

namespace {

// Cores that a cgroup's quota allows, 0 for no limit. cgroup v2: "max 100000" or "200000 100000" in cpu.max.
int cgroup_cores() {
  std::FILE* file = std::fopen("/sys/fs/cgroup/cpu.max", "r");
  if (file == nullptr) return 0;
  long long quota = 0, period = 0;
  const int fields = std::fscanf(file, "%lld %lld", &quota, &period);
  std::fclose(file);
  if (fields != 2 || quota <= 0 || period <= 0) return 0;
  return static_cast<int>((quota + period - 1) / period);
}

}  // namespace

int usable_cores() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  int cores = sched_getaffinity(0, sizeof mask, &mask) == 0 ? CPU_COUNT(&mask)
                                                            : static_cast<int>(std::thread::hardware_concurrency());
  if (const int quota = cgroup_cores(); quota > 0 && quota < cores) cores = quota;
  return cores < 1 ? 1 : cores;
}

}  // namespace magister
