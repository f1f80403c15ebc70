// The emulated block: barriers, shuffles, the tensor-core product, and the faults that it must find in a kernel.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "magister/core/error.h"
#include "magister/device/host_block.h"
#include "magister/device/launch.h"

namespace magister::gpu {
namespace gpu_block_test {

class BothOrders : public testing::TestWithParam<HostOrder> {
 protected:
  void SetUp() override { set_host_order(GetParam()); }
  void TearDown() override { set_host_order(HostOrder::kAscending); }
};
INSTANTIATE_TEST_SUITE_P(Orders, BothOrders, testing::Values(HostOrder::kAscending, HostOrder::kDescending));

TEST_P(BothOrders, SumsOverABlockReachEveryThread) {
  std::vector<float> sums(2 * 96, -1);
  run_on_host({.blocks_x = 2, .threads = 96, .shared_bytes = 128}, [&](HostThread& t) {
    const float sum = block_sum(t, static_cast<float>(t.thread() + t.block_x()), reinterpret_cast<float*>(t.shared()));
    sums[static_cast<std::size_t>(t.block_x() * 96 + t.thread())] = sum;
  });
  EXPECT_EQ(std::count(sums.begin(), sums.begin() + 96, 4560.0f), 96);
  EXPECT_EQ(std::count(sums.begin() + 96, sums.end(), 4656.0f), 96);
}

// A [16, 16] times B [16, 8] with whole numbers, against three plain loops; C is not zero before.
TEST_P(BothOrders, TensorCoreProductFollowsTheFragmentLayout) {
  const auto a = [](int m, int k) { return static_cast<float>((m * 5 + k * 3) % 11 - 5); };
  const auto b = [](int k, int n) { return static_cast<float>((k * 7 + n * 2) % 13 - 6); };
  float result[16][8];
  run_on_host({.threads = 32}, [&](HostThread& t) {
    const int g = t.lane() / 4, p = 2 * (t.lane() % 4);
    const std::uint32_t fragment_a[4] = {pack_bf16(a(g, p), a(g, p + 1)), pack_bf16(a(g + 8, p), a(g + 8, p + 1)),
                                         pack_bf16(a(g, p + 8), a(g, p + 9)),
                                         pack_bf16(a(g + 8, p + 8), a(g + 8, p + 9))};
    const std::uint32_t fragment_b[2] = {pack_bf16(b(p, g), b(p + 1, g)), pack_bf16(b(p + 8, g), b(p + 9, g))};
    float d[4] = {1, 1, 1, 1};
    t.mma_bf16(d, fragment_a, fragment_b);
    result[g][p] = d[0], result[g][p + 1] = d[1], result[g + 8][p] = d[2], result[g + 8][p + 1] = d[3];
  });
  for (int m = 0; m < 16; ++m) {
    for (int n = 0; n < 8; ++n) {
      float sum = 1;
      for (int k = 0; k < 16; ++k) sum += a(m, k) * b(k, n);
      EXPECT_EQ(result[m][n], sum) << m << ", " << n;
    }
  }
}

TEST(GpuBlock, ABarrierThatSomeThreadsSkipIsAnError) {
  const auto skips = [](HostThread& t) {
    if (t.thread() < 40) t.sync();
  };
  try {
    run_on_host({.threads = 64}, skips);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("40 of 64 threads wait"), std::string::npos) << error.what();
  }
}

TEST(GpuBlock, WritingBeyondSharedMemoryIsAnError) {
  EXPECT_THROW(run_on_host({.threads = 32, .shared_bytes = 64}, [](HostThread& t) { t.shared()[64] = 0; }), Error);
}

TEST(GpuBlock, SharedMemoryStartsAsNaN) {
  run_on_host({.threads = 32, .shared_bytes = 64}, [](HostThread& t) {
    EXPECT_NE(*reinterpret_cast<float*>(t.shared()), *reinterpret_cast<float*>(t.shared()));
  });
}

TEST(GpuBlock, Bf16RoundsToTheNearestEven) {
  EXPECT_EQ(to_bf16(1.0f).bits, 0x3f80);
  EXPECT_EQ(to_bf16(1.00390625f).bits, 0x3f80);  // half way: to even
  EXPECT_EQ(to_bf16(1.01171875f).bits, 0x3f82);
  EXPECT_EQ(to_float(to_bf16(-INFINITY)), -INFINITY);
  EXPECT_NE(to_float(to_bf16(NAN)), to_float(to_bf16(NAN)));
}

}  // namespace gpu_block_test
}  // namespace magister::gpu
