// The pool runs every tile once, rethrows, and the number of threads changes no bit of a product.
#include "magister/parallel/thread_pool.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

namespace magister {
namespace {

TEST(ThreadPool, RunsEveryTileOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
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

TEST(ThreadPool, RethrowsAndWorksAgain) {
  ThreadPool pool(3);
  for (int round = 0; round < 20; ++round) {
    EXPECT_THROW(pool.run(50, [](std::int64_t tile, int) { if (tile == 17) throw std::runtime_error("tile 17"); }),
                 std::runtime_error);
    std::atomic<int> done{0};
    pool.run(50, [&](std::int64_t, int) { ++done; });
    EXPECT_EQ(done, 50);
  }
}

TEST(ThreadPool, ProductsHaveTheSameBitsForAnyNumberOfThreads) {
  at::manual_seed(5);
  const at::Tensor x = at::randn({1000, 96}), weight = at::randn({80, 96});
  const auto product = [&](int threads) {
    ThreadPool pool(threads);
    at::Tensor out = at::empty({1000, 80});
    pool.run(4, [&](std::int64_t tile, int) {
      at::Tensor rows = out.narrow(0, tile * 250, 250);
      at::mm_out(rows, x.narrow(0, tile * 250, 250), weight.t());
    });
    return out;
  };
  const at::Tensor one = product(1);
  for (const int threads : {2, 3, 4}) EXPECT_TRUE(at::equal(product(threads), one)) << threads;
}

}  // namespace
}  // namespace magister
