// The numbers that a judge reads from a row, on the CPU and by the GPU's kernel thread by thread, on one shard and on
// several: compared with ATen's log_softmax in double, and the logits bit by bit.
#include "engine/wanted_rows.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <thread>

#include "magister/device/launch.h"
#include "magister/parallel/process_group.h"

namespace magister {
namespace wanted_rows_test {

// Deviations of a tenth to several nats, like those of a model that is sure of its token and of one that is not; the
// highest logits are far above the rest.
at::Tensor realistic_rows(std::int64_t R, std::int64_t V) {
  at::manual_seed(21);
  const at::Tensor widths_R1 = at::logspace(-1, 0.7, R, 10, at::kFloat).unsqueeze(1);
  at::Tensor logits_RV = at::randn({R, V}) * widths_R1 - 3.0;
  for (std::int64_t r = 0; r < R; ++r) logits_RV[r][(r * 7919) % V] = 12.0 + 0.5 * static_cast<double>(r);
  return logits_RV;
}

std::vector<WantedRow> read(const at::Tensor& logits_RV, const std::vector<std::vector<TokenId>>& ids, int shards,
                            bool gpu_code) {
  const std::vector<std::span<const TokenId>> wanted(ids.begin(), ids.end());
  auto groups = make_thread_process_groups(shards);
  std::vector<std::vector<WantedRow>> rows(groups.size());
  std::vector<std::thread> threads;
  const std::int64_t V = logits_RV.size(1);
  for (std::size_t s = 0; s < groups.size(); ++s) {
    threads.emplace_back([&, s] {
      LmHead head;
      head.vocab = {V * s / groups.size(), V * (s + 1) / groups.size()};
      if (gpu_code) head.queue = gpu::Queue{};
      const auto begin = static_cast<std::int64_t>(head.vocab.begin),
                 size = static_cast<std::int64_t>(head.vocab.size());
      rows[s] = read_wanted(logits_RV.narrow(1, begin, size).contiguous(), wanted, head, *groups[s]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& of_shard : rows) {
    for (std::size_t r = 0; r < of_shard.size(); ++r) {
      EXPECT_EQ(of_shard[r].logits, rows[0][r].logits);
      EXPECT_EQ(std::bit_cast<std::uint64_t>(of_shard[r].logsumexp), std::bit_cast<std::uint64_t>(rows[0][r].logsumexp))
          << "every shard has the same";
    }
  }
  return rows[0];
}

class WantedRows : public testing::TestWithParam<bool> {};

TEST_P(WantedRows, AreThoseOfTheWholeRow) {
  double worst = 0;
  for (const std::int64_t V : {5, 1003, 4096, 20008}) {
    const at::Tensor logits_RV = realistic_rows(6, V);
    const at::Tensor expected_R = at::logsumexp(logits_RV.to(at::kDouble), 1);
    const auto last = static_cast<TokenId>(V - 1), half = static_cast<TokenId>(V / 2);
    const std::vector<std::vector<TokenId>> ids = {{0, last}, {half}, {}, {last, half, 1, 0}, {2, 2}, {3}};
    for (const int shards : {1, 2, 3}) {
      const std::vector<WantedRow> rows = read(logits_RV, ids, shards, GetParam());
      for (std::size_t r = 0; r < ids.size(); ++r) {
        ASSERT_EQ(rows[r].logits.size(), ids[r].size());
        for (std::size_t i = 0; i < ids[r].size(); ++i)
          EXPECT_EQ(rows[r].logits[i], logits_RV[static_cast<std::int64_t>(r)][ids[r][i]].item<float>());
        worst = std::max(worst, std::abs(rows[r].logsumexp - expected_R[static_cast<std::int64_t>(r)].item<double>()));
      }
    }
  }
  std::printf("largest difference of a log-sum-exp: %.1e\n", worst);
  EXPECT_LT(worst, GetParam() ? 3e-7 : 1e-13);
}

TEST_P(WantedRows, ARowIsItsOwn) {
  const at::Tensor logits_RV = realistic_rows(6, 4099);
  const std::vector<std::vector<TokenId>> ids(6, {1, 4098});
  const std::vector<WantedRow> together = read(logits_RV, ids, 2, GetParam());
  for (std::int64_t r = 0; r < 6; ++r) {
    const WantedRow alone = read(logits_RV.narrow(0, r, 1), {{1, 4098}}, 2, GetParam())[0];
    EXPECT_EQ(alone.logsumexp, together[static_cast<std::size_t>(r)].logsumexp);
    EXPECT_EQ(alone.logits, together[static_cast<std::size_t>(r)].logits);
  }
}

TEST_P(WantedRows, ALogitThatIsNotFiniteIsNotANumber) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    for (const std::int64_t place : {0, 1500, 2999}) {
      at::Tensor logits_RV = realistic_rows(2, 3000);
      logits_RV[1][place] = bad;
      for (const int shards : {1, 3}) {
        const std::vector<WantedRow> rows = read(logits_RV, {{1}, {1}}, shards, GetParam());
        EXPECT_TRUE(std::isfinite(rows[0].logsumexp));
        EXPECT_TRUE(std::isnan(rows[1].logsumexp)) << bad << " at " << place;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, WantedRows, testing::Bool(),
                         [](const auto& info) { return info.param ? "GpuCode" : "Cpu"; });

TEST(WantedRowsKernel, TheOrderOfThreadsDoesNotMatter) {
  const at::Tensor logits_RV = realistic_rows(4, 2052);
  const std::vector<std::vector<TokenId>> ids(4, {7, 2051});
  const std::vector<WantedRow> one = read(logits_RV, ids, 1, true);
  gpu::set_host_order(gpu::HostOrder::kDescending);
  const std::vector<WantedRow> other = read(logits_RV, ids, 1, true);
  gpu::set_host_order(gpu::HostOrder::kAscending);
  for (std::size_t r = 0; r < one.size(); ++r) {
    EXPECT_EQ(one[r].logsumexp, other[r].logsumexp);
    EXPECT_EQ(one[r].logits, other[r].logits);
  }
}

}  // namespace wanted_rows_test
}  // namespace magister
