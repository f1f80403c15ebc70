// ThreadPool: the compute threads of one shard. Work is a fixed list of tiles whose number and extent never depend on
// the number of threads, and each tile is computed by one thread: so the thread count cannot change a bit of a result.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace magister {

class ThreadPool {
 public:
  // num_threads >= 1 including the calling thread: num_threads - 1 workers are started.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }

  // Calls tile(tile_index, thread_index) for every tile_index in [0, num_tiles), thread_index in [0, num_threads).
  // Tiles are taken in order of their index. Returns when all are done; the first exception is rethrown after that.
  // Not reentrant. Inside a tile ATen's own parallelism is off (at::set_num_threads(1) at construction).
  void run(std::int64_t num_tiles, const std::function<void(std::int64_t tile_index, int thread_index)>& tile);

 private:
  struct State;
  std::unique_ptr<State> state_;
  int num_threads_;
};

// Calls tile(index) for [0, num_tiles) on the pool's threads, or, without a pool, on this one.
void on_threads(ThreadPool* pool, std::int64_t num_tiles, const std::function<void(std::int64_t tile_index)>& tile);

// Cores that this process may use (sched_getaffinity, then the cgroup's CPU quota), at least 1.
int usable_cores();

}  // namespace magister
