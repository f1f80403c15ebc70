// ThreadPool: the compute threads of one shard. Work is a list of tiles whose number and extent do not depend on the
// number of threads, and one thread computes a tile. So the number of threads changes no bit of a result.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace magister {

class ThreadPool {
 public:
  // num_threads >= 1 includes the calling thread; num_threads - 1 workers are started.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }

  // Calls tile(tile_index, thread_index) for every tile_index in [0, num_tiles), with thread_index in [0, num_threads).
  // Tiles start in the order of their index. Returns when all are done; then rethrows the exception of the lowest tile
  // that failed (tiles that had not started are dropped). Not reentrant. ATen's own parallelism is off in every thread
  // that runs tiles (at::set_num_threads(1)).
  void run(std::int64_t num_tiles, const std::function<void(std::int64_t tile_index, int thread_index)>& tile);

 private:
  struct State;
  std::unique_ptr<State> state_;
  int num_threads_;
};

// Calls tile(index) for [0, num_tiles) on the pool's threads, or on this thread if there is no pool.
void on_threads(ThreadPool* pool, std::int64_t num_tiles, const std::function<void(std::int64_t tile_index)>& tile);

// Number of cores that this process may use (sched_getaffinity, then the cgroup's CPU quota), at least 1.
int usable_cores();

}  // namespace magister
