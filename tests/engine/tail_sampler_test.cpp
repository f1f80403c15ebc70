// Draws from the tokens that a row does not keep: over a fine grid of uniforms every token's mean weight is its
// probability; shards draw the same tokens as one head; a row's draws do not depend on its neighbours. The GPU's code
// runs on the host.
#include "magister/engine/tail_sampler.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>

#include "magister/engine/logit_reducer.h"
#include "magister/parallel/process_group.h"
#include "magister/parallel/thread_pool.h"

namespace magister {
namespace tail_sampler_test {

constexpr std::int64_t kV = 3000, kD = 24, kTop = 6, kDraws = 9;

struct Problem {
  at::Tensor weight_VD, hidden_TD;
  std::vector<double> uniforms;

  explicit Problem(std::int64_t T) {
    at::manual_seed(3);
    weight_VD = at::randn({kV, kD}) * 0.35;
    hidden_TD = at::randn({T, kD});
    for (std::int64_t t = 0; t < T; ++t) uniforms.push_back(static_cast<double>(t * 37 % 101) / 101);
  }
  at::Tensor sample(const std::vector<std::int64_t>& borders, bool on_gpu = false, int threads = 2) const {
    const int shards = static_cast<int>(borders.size()) - 1;
    auto groups = make_thread_process_groups(shards);
    std::vector<at::Tensor> draws(static_cast<std::size_t>(shards));
    std::vector<std::thread> workers;
    for (int s = 0; s < shards; ++s) {
      workers.emplace_back([&, s] {
        ThreadPool pool(threads);
        const std::int64_t begin = borders[s], end = borders[s + 1];
        const at::Tensor part = weight_VD.narrow(0, begin, end - begin).contiguous();
        LmHead head{on_gpu ? Linear{part, {}} : pack({part, {}}),
                    {static_cast<std::uint64_t>(begin), static_cast<std::uint64_t>(end)},
                    kV};
        if (on_gpu) head.queue = gpu::Queue{};
        const std::vector<TokenId> targets(static_cast<std::size_t>(hidden_TD.size(0)), -1);
        const ReducedLogits logits = LogitReducer(head, *groups[s], pool, kTop).reduce(hidden_TD, targets);
        draws[s] = TailSampler(head, *groups[s], pool, kDraws).sample(hidden_TD, logits, uniforms);
      });
    }
    for (std::thread& worker : workers) worker.join();
    for (const at::Tensor& other : draws) EXPECT_TRUE(other.equal(draws[0]));
    return draws[0];
  }
};

TEST(TailSampler, MeanWeightsAreProbabilities) {
  constexpr std::int64_t kGrid = 4000;
  Problem problem(kGrid);
  problem.hidden_TD = problem.hidden_TD.narrow(0, 0, 1).expand({kGrid, kD}).contiguous();
  for (std::int64_t t = 0; t < kGrid; ++t) problem.uniforms[t] = (static_cast<double>(t) + 0.5) / kGrid;
  const at::Tensor draws_Td = problem.sample({0, kV});
  at::Tensor p_V = at::softmax(at::mv(problem.weight_VD.to(at::kDouble), problem.hidden_TD[0].to(at::kDouble)), 0);
  p_V.index_fill_(0, std::get<1>(p_V.topk(kTop)), 0.0);
  const double rest = p_V.sum().item<double>();
  const at::Tensor counts_V = at::bincount(draws_Td.flatten().to(at::kLong), {}, kV).to(at::kDouble);
  const at::Tensor mean_V = counts_V / kGrid * (rest / kDraws);
  // A token's mean misses by at most two places of the grid, each of rest / draws / grid; f32 adds 2e-7.
  EXPECT_LT((mean_V - p_V).abs().max().item<double>(), 2.0 / kGrid * rest / kDraws + 1e-6);
  EXPECT_EQ(at::isin(draws_Td, std::get<1>(at::mv(problem.weight_VD, problem.hidden_TD[0]).topk(kTop)).to(at::kInt))
                .sum()
                .item<std::int64_t>(),
            0);
}

TEST(TailSampler, ShardsThreadsAndNeighboursDrawTheSame) {
  const Problem problem(300);
  const at::Tensor draws_Td = problem.sample({0, kV});
  EXPECT_TRUE(draws_Td.equal(problem.sample({0, kV}, false, 1)));
  // Sums of masses are rounded at other places: a draw on the border between two tokens may fall to the other.
  const at::Tensor sharded_Td = problem.sample({0, 1111, kV});
  EXPECT_LT((draws_Td != sharded_Td).to(at::kDouble).mean().item<double>(), 2e-3);
  EXPECT_LT((draws_Td != problem.sample({0, kV}, true)).to(at::kDouble).mean().item<double>(), 2e-3);
  Problem tail = problem;
  tail.hidden_TD = problem.hidden_TD.narrow(0, 290, 10).contiguous();
  tail.uniforms.assign(problem.uniforms.begin() + 290, problem.uniforms.end());
  EXPECT_TRUE(draws_Td.narrow(0, 290, 10).equal(tail.sample({0, kV})));
}

// The tail's mass is known to 1e-7, so a draw near its end may lie beyond the sum of all tokens. Here no token from
// 2,000 on has mass: in one case all tokens of the last shard, in others a part of a block.
TEST(TailSampler, ADrawBeyondTheTailIsTheLastTokenThatHasMass) {
  constexpr std::int64_t kEnd = 2000;
  Problem problem(64);
  problem.hidden_TD.select(1, 0).fill_(1.0);
  problem.weight_VD.narrow(0, kEnd, kV - kEnd).select(1, 0).fill_(-2000.0);
  problem.uniforms.assign(problem.uniforms.size(), 1 - 0x1p-53);
  const at::Tensor logits_TV = at::mm(problem.hidden_TD, problem.weight_VD.t());
  const at::Tensor rest_TV = logits_TV.scatter(1, std::get<1>(logits_TV.topk(kTop)), -1e9).narrow(1, 0, kEnd);
  const at::Tensor last_T = kEnd - 1 - at::argmax(rest_TV.flip(1).gt(-1e8).to(at::kInt), 1);
  for (const std::vector<std::int64_t>& borders :
       {std::vector<std::int64_t>{0, kV}, {0, kEnd, kV}, {0, 1111, 2500, kV}, {0, 1111, kEnd, 2500, kV}}) {
    const at::Tensor draws_Td = problem.sample(borders);
    EXPECT_TRUE(draws_Td.select(1, kDraws - 1).to(at::kLong).equal(last_T)) << borders.size() - 1 << " shards";
    EXPECT_LT(draws_Td.max().item<int>(), kEnd);
  }
}

// A fine grid of uniforms around the border of two shards, where one shard's sums and the other's are rounded in other
// ways: the draw is the last token of the one or the first of the other.
TEST(TailSampler, ADrawAtTheBorderOfTwoShardsIsMadeOnce) {
  constexpr std::int64_t kGrid = 4000, kBorder = 1111;
  Problem problem(kGrid);
  problem.hidden_TD = problem.hidden_TD.narrow(0, 0, 1).expand({kGrid, kD}).contiguous();
  at::Tensor p_V = at::softmax(at::mv(problem.weight_VD.to(at::kDouble), problem.hidden_TD[0].to(at::kDouble)), 0);
  p_V.index_fill_(0, std::get<1>(p_V.topk(kTop)), 0.0);
  const double place = (p_V.narrow(0, 0, kBorder).sum() / p_V.sum()).item<double>() * kDraws;
  const auto draw = static_cast<std::int64_t>(place);
  for (std::int64_t t = 0; t < kGrid; ++t)
    problem.uniforms[t] = place - static_cast<double>(draw) + static_cast<double>(t - kGrid / 2) * 1e-9;
  ASSERT_GT(p_V[kBorder - 1].item<double>(), 0);
  ASSERT_GT(p_V[kBorder].item<double>(), 0);
  const at::Tensor drawn_T = problem.sample({0, kBorder, kV}).select(1, draw);
  EXPECT_EQ(drawn_T.min().item<int>(), kBorder - 1);
  EXPECT_EQ(drawn_T.max().item<int>(), kBorder);
}

}  // namespace tail_sampler_test
}  // namespace magister
