// The pool runs every tile once, rethrows, does not burn cores when idle or oversubscribed, and the number of threads
// changes no bit of a product.
#include "magister/parallel/thread_pool.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <iterator>
#include <set>
#include <stdexcept>
#include <thread>

#include "magister/core/error.h"

namespace magister {
namespace thread_pool_test {

using namespace std::chrono_literals;

TEST(ThreadPool, RunsEveryTileOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.num_threads(), threads);
    for (const std::int64_t tiles : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> count(static_cast<std::size_t>(tiles));
      pool.run(tiles, [&](std::int64_t tile, int thread) {
        EXPECT_GE(thread, 0);
        EXPECT_LT(thread, threads);
        ++count[static_cast<std::size_t>(tile)];
      });
      for (const auto& c : count) EXPECT_EQ(c, 1);
    }
  }
}

// 100,000 short runs with pauses in which workers fall asleep: a lost wake-up would hang, a late one would run a tile
// of another run (whose sum would be wrong).
TEST(ThreadPool, ShortRunsNeverMix) {
  ThreadPool pool(4);
  std::int64_t expected = 0;
  std::atomic<std::int64_t> sum{0};
  for (int round = 0; round < 100'000; ++round) {
    const std::int64_t tiles = 2 + round % 7;
    pool.run(tiles, [&, round](std::int64_t tile, int) { sum.fetch_add(round + tile, std::memory_order_relaxed); });
    expected += tiles * round + tiles * (tiles - 1) / 2;
    ASSERT_EQ(sum.load(), expected);
    if (round % 10'000 == 0) std::this_thread::sleep_for(1ms);
  }
}

TEST(ThreadPool, TilesAreDrawnInOrder) {
  ThreadPool pool(3);
  std::atomic<std::int64_t> begun{0};
  pool.run(500, [&](std::int64_t tile, int) {
    // All tiles before this one are drawn; each of the two other threads may hold one of them that it has not counted.
    EXPECT_GE(begun.fetch_add(1), tile - 2);
  });
}

TEST(ThreadPool, ManyThreadsTakePart) {
  ThreadPool pool(3);
  std::mutex mutex;
  std::set<int> seen;
  std::atomic<int> inside{0};
  pool.run(3, [&](std::int64_t, int thread) {
    ++inside;
    while (inside < 3) std::this_thread::yield();  // each tile waits for the other two: three threads or never
    const std::lock_guard lock(mutex);
    seen.insert(thread);
  });
  EXPECT_EQ(seen, (std::set<int>{0, 1, 2}));
}

TEST(ThreadPool, RethrowsAndWorksAgain) {
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    std::int64_t all_begun = 0;
    for (int round = 0; round < 200; ++round) {
      std::atomic<int> begun{0};
      try {
        pool.run(5000, [&](std::int64_t tile, int) {
          ++begun;
          if (tile == 17) throw std::runtime_error("tile 17");
        });
        FAIL() << "no exception";
      } catch (const std::runtime_error& error) {
        EXPECT_STREQ(error.what(), "tile 17");
      }
      all_begun += begun;
      std::atomic<int> done{0};
      pool.run(50, [&](std::int64_t, int) { ++done; });
      EXPECT_EQ(done, 50);
    }
    // Tiles after the failed one are not begun. On a busy machine the thread that throws may be off its core while the
    // others draw every tile, so with several threads only the sum over the rounds shows it.
    if (threads == 1) {
      EXPECT_EQ(all_begun, 200 * 18);
    }
    EXPECT_LT(all_begun, 200 * 5000);
  }
}

TEST(ThreadPool, UseInsideItsOwnTileIsRefused) {
  ThreadPool pool(2);
  EXPECT_THROW(pool.run(4, [&](std::int64_t, int) { pool.run(2, [](std::int64_t, int) {}); }), Error);
  EXPECT_NO_THROW(pool.run(4, [](std::int64_t, int) {}));
  EXPECT_THROW(ThreadPool(0), Error);
}

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

TEST(ThreadPool, SleepsWhenThereIsNothingToDo) {
  ThreadPool few(2), many(16);
  few.run(64, [](std::int64_t, int) {});
  many.run(64, [](std::int64_t, int) {});
  // Before long; when, is the scheduler's: a worker that has not had a core yet spins when it gets one.
  double used = 1;
  for (int look = 0; look < 200 && used >= 0.03; ++look) {
    const double before = cpu_seconds();
    std::this_thread::sleep_for(300ms);
    used = cpu_seconds() - before;
  }
  EXPECT_LT(used, 0.03);
}

// No thread waits for a worker that has not woken: with far more threads than cores a run of two tiles costs as much as
// two tiles.
TEST(ThreadPool, OversubscribedItCostsNoMoreThanItsTiles) {
  ThreadPool pool(32);
  const double before = cpu_seconds();
  for (int round = 0; round < 2000; ++round) pool.run(2, [](std::int64_t, int) {});
  EXPECT_LT(cpu_seconds() - before, 2.0);  // 1 ms a run; a pool that wakes all 32 and waits takes several times that
}

// at::mm in a tile: the bits are those of one thread, for every pool and every earlier setting of the library.
TEST(ThreadPool, ProductsHaveTheSameBitsForAnyNumberOfThreads) {
  at::manual_seed(5);
  const at::Tensor x = at::randn({1024, 576}), weight = at::randn({1536, 576});
  const auto product = [&](int threads) {
    ThreadPool pool(threads);
    at::Tensor out = at::empty({1024, 1536});
    pool.run(8, [&](std::int64_t tile, int) {
      EXPECT_EQ(at::get_num_threads(), 1);
      at::Tensor rows = out.narrow(0, tile * 128, 128);
      at::mm_out(rows, x.narrow(0, tile * 128, 128), weight.t());
    });
    return out;
  };
  const at::Tensor one = product(1);
  for (const int threads : {2, 3, 4}) EXPECT_TRUE(at::equal(product(threads), one)) << threads;
  // A shard's pool is made in one thread and used in another.
  at::Tensor other;
  std::thread([&] { other = product(2); }).join();
  EXPECT_TRUE(at::equal(other, one));
}

TEST(ThreadPool, TheLibraryStartsNoThreadsOfItsOwn) {
  const auto threads_of_process = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator());
  };
  const auto before = threads_of_process();
  ThreadPool pool(3);
  const at::Tensor x = at::randn({512, 512});
  std::atomic<std::int64_t> most{0};
  pool.run(6, [&](std::int64_t, int) {
    at::mm(x, x);
    at::softmax(at::randn({2000, 2000}), 1);
    most = std::max<std::int64_t>(most, threads_of_process());
  });
  EXPECT_LE(most, before + 2);
}

}  // namespace thread_pool_test
}  // namespace magister
