// The fused head against log_softmax and a full sort, alone and over uneven shards of the vocabulary; the GPU's head
// with its kernel run on the host.
#include "magister/engine/logit_reducer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "magister/core/error.h"
#include "support/counted_bytes.h"

namespace magister {
namespace logit_reducer_test {

struct Problem {
  at::Tensor weight_VD, hidden_TD;
  std::vector<TokenId> targets;
  bool on_gpu = false;

  Problem(std::int64_t T, std::int64_t D, std::int64_t V, double scale = 0.3) {
    at::manual_seed(7);
    weight_VD = at::randn({V, D}) * scale;
    hidden_TD = at::randn({T, D});
    for (std::int64_t t = 0; t < T; ++t) targets.push_back(t % 5 == 4 ? -1 : static_cast<TokenId>(t * 31 % V));
  }
  LmHead head(std::int64_t begin, std::int64_t end) const {
    if (on_gpu) {
      return {{weight_VD.narrow(0, begin, end - begin), {}},
              {static_cast<std::uint64_t>(begin), static_cast<std::uint64_t>(end)},
              weight_VD.size(0),
              gpu::Queue{}};
    }
    return {pack({weight_VD.narrow(0, begin, end - begin).contiguous(), {}}),
            {static_cast<std::uint64_t>(begin), static_cast<std::uint64_t>(end)},
            weight_VD.size(0)};
  }
  LmHead head() const { return head(0, weight_VD.size(0)); }
};

ReducedLogits reduce_sharded(const Problem& problem, const std::vector<std::int64_t>& borders, std::int64_t top_k) {
  const int shards = static_cast<int>(borders.size()) - 1;
  auto groups = make_thread_process_groups(shards);
  std::vector<ReducedLogits> results(static_cast<std::size_t>(shards));
  std::vector<std::thread> threads;
  for (int s = 0; s < shards; ++s) {
    threads.emplace_back([&, s] {
      ThreadPool pool(1);
      const LmHead head = problem.head(borders[s], borders[s + 1]);
      results[s] = LogitReducer(head, *groups[s], pool, top_k).reduce(problem.hidden_TD, problem.targets);
    });
  }
  for (auto& thread : threads) thread.join();
  for (int s = 1; s < shards; ++s) {
    EXPECT_TRUE(at::equal(results[s].top_id_Tk, results[0].top_id_Tk)) << "shards disagree";
    EXPECT_TRUE(at::allclose(results[s].logsumexp_T, results[0].logsumexp_T, 0, 0, /*equal_nan=*/true))
        << "shards disagree";
  }
  return results[0];
}

double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor both = at::isnan(a) & at::isnan(b);
  EXPECT_TRUE(at::equal(at::isnan(a), at::isnan(b)));
  return (a - b).masked_fill(both, 0.0).abs().max().item<double>();
}

void expect_near(const ReducedLogits& got, const ReducedLogits& want, double tolerance) {
  EXPECT_LE(largest_difference(got.top_logprob_Tk, want.top_logprob_Tk), tolerance);
  EXPECT_LE(largest_difference(got.logsumexp_T, want.logsumexp_T), tolerance);
  EXPECT_LE(largest_difference(got.target_logprob_T, want.target_logprob_T), tolerance);
  EXPECT_LE(largest_difference(got.entropy_T, want.entropy_T), 4 * tolerance);
  EXPECT_LE(largest_difference(got.tail_mass_T, want.tail_mass_T), tolerance);
  // Ids may swap only where the log-probabilities are as good as equal.
  const at::Tensor swapped = got.top_id_Tk != want.top_id_Tk;
  if (swapped.any().item<bool>() && got.top_id_Tk.size(1) > 1) {
    const at::Tensor gap = at::minimum((want.top_logprob_Tk - want.top_logprob_Tk.roll(1, 1)).abs(),
                                       (want.top_logprob_Tk - want.top_logprob_Tk.roll(-1, 1)).abs());
    EXPECT_LE(gap.masked_fill(swapped.logical_not(), 0.0).max().item<double>(), tolerance);
  }
}

class TopK : public testing::TestWithParam<std::tuple<std::int64_t, bool>> {
 protected:
  std::int64_t k() const { return std::get<0>(GetParam()); }
  bool on_gpu() const { return std::get<1>(GetParam()); }
};

TEST_P(TopK, EqualsLogSoftmaxAndSort) {
  Problem problem(on_gpu() ? 530 : 300, 48, 2500);  // on a GPU a tile has 512 rows
  problem.on_gpu = on_gpu();
  const auto group = make_single_process_group();
  ThreadPool pool(2);
  LmHead head = problem.head();
  for (const double softcap : {0.0, 2.5}) {  // logits reach 8
    head.softcap = softcap;
    const ReducedLogits got = LogitReducer(head, *group, pool, k()).reduce(problem.hidden_TD, problem.targets);
    expect_near(got, LogitReducer::reduce_reference(head, problem.hidden_TD, problem.targets, k()), 1e-5);
  }
}

TEST_P(TopK, EqualsTheUnshardedHeadOverUnevenShards) {
  Problem problem(130, 32, 2500);
  const ReducedLogits whole = reduce_sharded(problem, {0, 2500}, k());
  problem.on_gpu = on_gpu();
  expect_near(reduce_sharded(problem, {0, 1472, 2500}, k()), whole, 1e-5);
  expect_near(reduce_sharded(problem, {0, 7, 1500, 2500}, k()), whole, 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Sizes, TopK, testing::Combine(testing::Values(1, 2, 64, 1000, 2499, 2500), testing::Bool()));

class Head : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(CpuAndGpu, Head, testing::Bool());

TEST_P(Head, TiesGoToTheLowerId) {
  Problem problem(40, 16, 3000);
  problem.on_gpu = GetParam();
  problem.weight_VD = problem.weight_VD.narrow(0, 0, 10).repeat({300, 1});  // every logit occurs 300 times
  const ReducedLogits got = reduce_sharded(problem, {0, 1024, 3000}, 64);
  const at::Tensor step = got.top_id_Tk.narrow(1, 1, 63) - got.top_id_Tk.narrow(1, 0, 63);
  EXPECT_TRUE((step == 10).all().item<bool>()) << "the best logit's copies, in the order of their ids";
  EXPECT_TRUE((got.top_id_Tk.select(1, 0) < 10).all().item<bool>());
}

TEST_P(Head, EqualRoundedLogprobsAreOrderedById) {
  // A huge common logit makes many different logits round to the same f32 log-probability.
  Problem problem(60, 8, 1500, 1e-6);
  problem.on_gpu = GetParam();
  problem.weight_VD = problem.weight_VD + 200.0;
  const ReducedLogits got = reduce_sharded(problem, {0, 1500}, 32);
  const auto id = got.top_id_Tk.accessor<int, 2>();
  const auto logprob = got.top_logprob_Tk.accessor<float, 2>();
  for (int t = 0; t < 60; ++t) {
    for (int i = 1; i < 32; ++i) {
      EXPECT_GE(logprob[t][i - 1], logprob[t][i]);
      if (logprob[t][i - 1] == logprob[t][i]) {
        EXPECT_LT(id[t][i - 1], id[t][i]) << t << " " << i;
      }
    }
  }
}

TEST(LogitReducer, BitsDoNotDependOnTheNumberOfThreads) {
  const Problem problem(700, 64, 4000);
  const auto group = make_single_process_group();
  const LmHead head = problem.head();
  ThreadPool one(1), three(3);
  const ReducedLogits a = LogitReducer(head, *group, one, 20).reduce(problem.hidden_TD, problem.targets);
  const ReducedLogits b = LogitReducer(head, *group, three, 20).reduce(problem.hidden_TD, problem.targets);
  EXPECT_TRUE(at::equal(a.top_id_Tk, b.top_id_Tk));
  EXPECT_TRUE(at::equal(a.top_logprob_Tk, b.top_logprob_Tk));
  EXPECT_TRUE(at::equal(a.logsumexp_T, b.logsumexp_T));
  EXPECT_TRUE(at::equal(a.entropy_T, b.entropy_T));
}

TEST_P(Head, ExtremeLogitsStayFinite) {
  Problem problem(8, 4, 300);
  problem.on_gpu = GetParam();
  problem.weight_VD = problem.weight_VD * 1e4;
  const ReducedLogits got = reduce_sharded(problem, {0, 100, 300}, 5);
  EXPECT_TRUE(at::isfinite(got.logsumexp_T).all().item<bool>());
  EXPECT_GE(got.entropy_T.min().item<float>(), 0.0f);
  EXPECT_LE(got.tail_mass_T.max().item<float>(), 1.0f);
}

// Logits that rise with the id: every column enters, and the threshold rises with every chunk. Tests both orders of the
// emulated threads.
TEST(GpuHead, RisingLogits) {
  Problem problem(3, 4, 9000);
  problem.on_gpu = true;
  problem.hidden_TD = at::ones({3, 4});
  problem.weight_VD = (at::arange(9000, at::kFloat) * 1e-3).unsqueeze(1).repeat({1, 4});
  problem.targets = {0, 8989, 8995};
  const auto group = make_single_process_group();
  ThreadPool pool(1);
  for (const gpu::HostOrder order : {gpu::HostOrder::kAscending, gpu::HostOrder::kDescending}) {
    gpu::set_host_order(order);
    const LmHead head = problem.head();
    const ReducedLogits got = LogitReducer(head, *group, pool, 900).reduce(problem.hidden_TD, problem.targets);
    EXPECT_TRUE(at::equal(got.top_id_Tk[0], at::arange(8999, 8099, -1, at::kInt)));
    const at::Tensor logits = problem.weight_VD.sum(1).to(at::kDouble);
    EXPECT_NEAR(got.logsumexp_T[1].item<float>(), at::logsumexp(logits, {0}).item<double>(), 1e-5);
  }
  gpu::set_host_order(gpu::HostOrder::kAscending);
}

// Rows that keep more entries than the kernel holds are sorted, a few at a time: with a tile of logits and the kept
// entries in memory there is no space for copies of the tile.
TEST(GpuHead, SortsWithinThePlannedMemory) {
  constexpr std::int64_t kRows = kLogitRows, kVocabulary = 2400, kTopK = 1100;
  Problem problem(kRows, 8, kVocabulary);
  problem.on_gpu = true;
  const LmHead head = problem.head();
  const auto group = make_single_process_group();
  ThreadPool pool(1);
  const LogitReducer reducer(head, *group, pool, kTopK);
  CountedBytes counted;
  const LogitReducer::Started started = reducer.start(problem.hidden_TD, problem.targets);
  const std::uint64_t planned = reducer.scratch_bytes() + 2 * kRows * reducer.bytes_of_row() + (2 << 20);
  std::printf("%.1f MB of %.1f planned\n", 1e-6 * static_cast<double>(counted.most()),
              1e-6 * static_cast<double>(planned));
  EXPECT_LE(counted.most(), planned);
}

// A NaN or an infinity in one column (of every row), or in every column of one row; with shards in one shard's part
// only.
TEST_P(Head, ARowThatIsNotFiniteIsSeenWhereverItsFaultStands) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  for (const float fault : {nan, infinity, -infinity}) {
    for (const std::int64_t column : {0, 959, 960, 1471, 1472, 2499, -1}) {
      Problem problem(4, 1, 2500);
      problem.on_gpu = GetParam();
      if (column < 0) {
        problem.hidden_TD[3][0] = fault;
      } else {
        problem.weight_VD[column][0] = fault;
      }
      for (const std::vector<std::int64_t>& borders : {std::vector<std::int64_t>{0, 2500}, {0, 1472, 2500}}) {
        const ReducedLogits got = reduce_sharded(problem, borders, 5);
        for (std::int64_t t = 0; t < 4; ++t) {
          const bool bad = column >= 0 || t == 3;
          EXPECT_EQ(std::isfinite(got.logsumexp_T[t].item<float>()), !bad)
              << "column " << column << ", row " << t << ", " << fault;
          EXPECT_EQ(std::isfinite(got.entropy_T[t].item<float>()), !bad)
              << "column " << column << ", row " << t << ", " << fault;
        }
      }
    }
  }
}

// With 1,100 entries a GPU sorts whole rows instead of running its kernel.
TEST_P(Head, ALogitThatIsNoNumberIsNoCandidate) {
  for (const std::int64_t column : {0, 1471, 1472}) {
    Problem problem(4, 8, 2500);
    problem.on_gpu = GetParam();
    at::Tensor logits_TV = at::mm(problem.hidden_TD, problem.weight_VD.t());
    logits_TV.select(1, column).fill_(-1e9);
    problem.weight_VD[column][0] = std::numeric_limits<float>::quiet_NaN();
    for (const std::int64_t top : {5, 1100}) {
      const at::Tensor wanted_Tk = std::get<1>(logits_TV.topk(top)).to(at::kInt);
      for (const std::vector<std::int64_t>& borders : {std::vector<std::int64_t>{0, 2500}, {0, 1472, 2500}}) {
        const ReducedLogits got = reduce_sharded(problem, borders, top);
        EXPECT_FALSE((got.top_id_Tk == static_cast<int>(column)).any().item<bool>()) << column << " of " << top;
        EXPECT_TRUE(got.top_id_Tk.narrow(1, 0, 5).equal(wanted_Tk.narrow(1, 0, 5))) << column << " of " << top;
        EXPECT_TRUE(got.top_logprob_Tk.isnan().all().item<bool>());
      }
    }
  }
}

TEST(LogitReducer, RefusesATopKOutsideTheVocabulary) {
  const Problem problem(2, 4, 10);
  const auto group = make_single_process_group();
  ThreadPool pool(1);
  const LmHead head = problem.head();
  EXPECT_THROW(LogitReducer(head, *group, pool, 11), Error);
  EXPECT_THROW(LogitReducer(head, *group, pool, 0), Error);
}

}  // namespace logit_reducer_test
}  // namespace magister
