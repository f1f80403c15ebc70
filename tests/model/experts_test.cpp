// A mixture of experts: the choice among equal or nearly equal logits, and that a token's bits do not depend on its
// neighbours, the number of threads and the tile. Whole models with experts: families_test.py.
#include "model/cpu/experts.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "magister/model/transformer.h"

namespace magister {
namespace experts_test {

std::vector<std::int32_t> chosen(const std::vector<float>& logits, std::int64_t k) {
  const Routes routes = choose_experts(at::tensor(logits).unsqueeze(0), k, true);
  const auto* experts = routes.experts_Tk.const_data_ptr<std::int32_t>();
  return {experts, experts + k};
}

TEST(ChooseExperts, OfEqualLogitsTheLowerNumberWinsAndOneUlpDecides) {
  const float one_more = std::nextafter(1.0f, 2.0f);
  EXPECT_EQ(chosen({1, 1, 1, 1, 1}, 2), (std::vector<std::int32_t>{0, 1}));
  EXPECT_EQ(chosen({0, 1, 2, 1, 1}, 2), (std::vector<std::int32_t>{1, 2}));
  EXPECT_EQ(chosen({0, 1, 2, 1, one_more}, 2), (std::vector<std::int32_t>{2, 4}));
  EXPECT_EQ(chosen({-0.0f, 0.0f, -1}, 1), (std::vector<std::int32_t>{0}));
  EXPECT_EQ(chosen({3, 2, 1}, 3), (std::vector<std::int32_t>{0, 1, 2}));
}

TEST(ChooseExperts, IsTopKOfASoftmax) {
  at::manual_seed(5);
  const at::Tensor logits_TX = at::randn({200, 37}) * 3;
  const auto [values_Tk, index_Tk] = at::topk(at::softmax(logits_TX, -1), 5);
  for (const bool normed : {false, true}) {
    const Routes routes = choose_experts(logits_TX, 5, normed);
    const auto [sorted_Tk, order_Tk] = index_Tk.sort(1);
    EXPECT_TRUE(at::equal(routes.experts_Tk.to(at::kLong), sorted_Tk));
    const at::Tensor wanted_Tk = (normed ? values_Tk / values_Tk.sum(1, true) : values_Tk).gather(1, order_Tk);
    EXPECT_LE((routes.weights_Tk - wanted_Tk).abs().max().item<double>(), 1e-6);
  }
}

TEST(ChooseExperts, LogitsThatAreNoNumbersShow) {
  for (const bool normed : {false, true}) {
    const Routes routes = choose_experts(at::tensor({1.0f, 2.0f, std::nanf(""), 0.0f}).unsqueeze(0), 2, normed);
    EXPECT_TRUE(at::isnan(routes.weights_Tk).all().item<bool>()) << normed;
  }
}

TEST(ChooseExperts, ALogitThatIsNoNumberIsChosenLast) {
  const float nan = std::nanf("");
  for (const auto& [logits, wanted] : {std::pair(std::vector<float>{nan, 1, 2, 0}, std::vector<int>{1, 2}),
                                       {{1, 2, nan, 0}, {0, 1}},
                                       {{nan, nan, nan, 0}, {0, 3}}}) {
    const Routes routes = choose_experts(at::tensor(logits).unsqueeze(0), 2, false);
    EXPECT_TRUE(routes.experts_Tk.equal(at::tensor(wanted, at::kInt).unsqueeze(0))) << routes.experts_Tk;
  }
}

class Mixture : public testing::Test {
 protected:
  static constexpr std::int64_t kD = 40, kF = 24, kX = 9, kK = 3, kT = 700;
  Mixture() {
    at::manual_seed(11);
    shape_.hidden_size = kD;
    shape_.expert_mlp = kF;
    shape_.num_experts = kX;
    shape_.experts_per_token = kK;
    shape_.norm_topk_prob = true;
    shape_.heads = shape_.kv_heads = 1;
    shape_.head_dim = 8;
    ExpertsWeights weights;
    weights.norms.input_D = at::randn({kD}).abs();
    at::Tensor router_XD = at::randn({kX, kD});
    router_XD[4] = router_XD[2];  // ties in every token, and near ties
    router_XD[7] = router_XD[2] * (1 + 1e-7);
    weights.router = pack({router_XD, {}});
    LayerShape of_expert = shape_;
    of_expert.mlp = kF;
    for (std::int64_t x = 0; x < kX; ++x) {
      FeedForwardWeights expert{{}, pack({at::randn({2 * kF, kD}) * 0.3, {}}), pack({at::randn({kD, kF}) * 0.3, {}})};
      weights.experts.emplace_back(of_expert, std::move(expert));
    }
    experts_ = std::make_unique<Experts>(shape_, std::move(weights));
    hidden_TD_ = at::randn({kT, kD});
  }

  // more: tokens of the pass that this layer does not compute.
  at::Tensor run(const at::Tensor& hidden_TD, int threads, Routes* routes = nullptr, std::int64_t more = 0) {
    const std::int64_t T = hidden_TD.size(0);
    ThreadPool pool(threads);
    const PackedBatch batch = pack_sequences({std::vector<TokenId>(static_cast<std::size_t>(T + more), 0)});
    LayerBuffers buffers(batch, {}, shape_, threads);
    buffers.scratch.fill_(std::numeric_limits<float>::quiet_NaN());  // nothing stale may be read
    buffers.experts_Tk.fill_(1 << 30);
    at::Tensor out_TD = hidden_TD.clone();
    experts_->run(out_TD.const_data_ptr<float>(), T, buffers, out_TD.data_ptr<float>(), true, pool);
    if (routes) *routes = {buffers.experts_Tk, buffers.expert_weights_Tk};
    return out_TD;
  }

  LayerShape shape_;
  std::unique_ptr<Experts> experts_;
  at::Tensor hidden_TD_;
};

TEST_F(Mixture, EqualsPlainCode) {
  Routes routes;
  const at::Tensor fast_TD = run(hidden_TD_, 2, &routes);
  EXPECT_LE((fast_TD - hidden_TD_ - experts_->reference(hidden_TD_, routes)).abs().max().item<double>(), 2e-4);
  // Without ties the plain code chooses the same.
  const at::Tensor together_Tk = routes.experts_Tk;
  EXPECT_TRUE(((together_Tk == 4).any(1) & (together_Tk == 2).any(1).logical_not()).logical_not().all().item<bool>())
      << "expert 4 was chosen without 2, its twin of a lower number";
}

TEST_F(Mixture, ATokensBitsAreItsOwn) {
  const at::Tensor together_TD = run(hidden_TD_, 1);
  for (const int threads : {2, 5, 16}) EXPECT_TRUE(at::equal(run(hidden_TD_, threads), together_TD)) << threads;
  for (const std::int64_t begin : {0, 255, 256, 699})
    EXPECT_TRUE(at::equal(run(hidden_TD_.narrow(0, begin, 1).contiguous(), 3), together_TD.narrow(0, begin, 1)));
  EXPECT_TRUE(at::equal(run(hidden_TD_.flip(0).contiguous(), 2).flip(0), together_TD));
}

// In a last layer of which a few rows are read the buffers are those of the whole pass.
TEST_F(Mixture, TokensThatAreNotComputedHaveNoExperts) {
  const at::Tensor few_RD = hidden_TD_.narrow(0, 0, 5).contiguous();
  EXPECT_TRUE(at::equal(run(few_RD, 2, nullptr, 300), run(few_RD, 2)));
}

}  // namespace experts_test
}  // namespace magister
