// The kernels of a mixture of experts on the host against the CPU code's rule and plain sums: every kind of router,
// ties, NaN, every size.
#include "model/gpu/gpu_experts.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "model/cpu/experts.h"
#include "model/gpu/expert_kernels.h"
#include "model/gpu/gpu_mlp.h"
#include "model/gpu/head_norm_kernels.h"

namespace magister::gpu {
namespace gpu_experts_test {

GpuLayer layer_with(const RouterRule& rule, const at::Tensor& choice_bias_X = {}) {
  GpuLayer layer;
  LayerShape& shape = layer.shape;
  shape.num_experts = rule.experts + rule.shared;
  shape.experts_per_token = rule.routes();
  shape.num_shared_experts = rule.shared;
  shape.shared_expert_gate = rule.shared_gate;
  shape.norm_topk_prob = rule.normed;
  shape.router = rule.config;
  layer.choice_bias_X = choice_bias_X;
  return layer;
}

RouterRule plain_rule(std::int64_t experts, std::int64_t per_token, bool normed) {
  return {experts, per_token, normed};
}

TEST(GpuExperts, ChooseAsTheCpuDoes) {
  at::manual_seed(1);
  for (const auto& [X, k] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1}, {8, 2}, {8, 8}, {33, 5}, {128, 8}, {200, 40}}) {
    for (const bool normed : {false, true}) {
      at::Tensor logits_TX = at::randn({37, X}) * 3;
      logits_TX.narrow(0, 0, 9).round_();  // many are equal
      logits_TX[10].fill_(0.5);
      logits_TX[11][X - 1] = std::numeric_limits<float>::infinity();
      const GpuRoutes found = choose_experts(logits_TX, layer_with(plain_rule(X, k, normed)), Queue{});
      const Routes wanted = magister::choose_experts(logits_TX, k, normed);
      EXPECT_TRUE(at::equal(found.experts_TR, wanted.experts_Tk)) << X << " experts, " << k << " a token";
      EXPECT_TRUE(at::allclose(found.weights_TR, wanted.weights_Tk, 1e-6, 1e-7, /*equal_nan=*/true)) << X << " " << k;
    }
  }
}

using Scores = RouterConfig::Scores;

// A router of every kind, with a name for messages.
struct Kind {
  const char* name;
  RouterRule rule;
  bool bias = false;
};
std::vector<Kind> kinds() {
  std::vector<Kind> all;
  const auto add = [&](const char* name, std::int64_t X, std::int64_t k, bool normed, const RouterConfig& config,
                       std::int64_t shared = 0, bool gate = false) {
    all.push_back({name, {X, k, normed, config, shared, gate}, config.choice_bias});
  };
  add("shared, with a gate", 8, 3, false, {}, 1, true);
  add("sigmoids", 40, 5, true, {.scores = Scores::kSigmoid, .scaling = 2.5, .least_sum = 1e-20});
  add("sigmoids, no norm", 5, 2, false, {.scores = Scores::kSigmoid, .shared_weight = 0.5}, 2);
  add("sigmoids with a bias", 70, 6, true, {.scores = Scores::kSigmoid, .choice_bias = true, .scaling = 1.7}, 1);
  add("logits with a bias", 24, 4, true,
      {.scores = Scores::kSigmoid, .choice_bias = true, .chooses_by_logits = true, .least_sum = 0.9});
  add("groups", 64, 6, true,
      {.scores = Scores::kSigmoid, .choice_bias = true, .groups = 8, .chosen_groups = 3, .least_sum = 1e-20});
  add("groups by their best", 160, 6, false, {.groups = 8, .chosen_groups = 3, .groups_by_best = true, .scaling = 16.0},
      2);
  add("many groups", 132, 9, true, {.choice_bias = true, .groups = 66, .chosen_groups = 40});
  add("softmax with a bias", 33, 6, true, {.choice_bias = true, .least_sum = 1e-12}, 2);
  add("sparse mixer", 16, 2, false, {.scores = Scores::kSparseMixer, .margin = 0.05});
  add("weights of inputs", 16, 1, false, {.scores = Scores::kSigmoid, .weighs_inputs = true}, 1);
  return all;
}

class Routers : public testing::TestWithParam<HostOrder> {
 protected:
  void SetUp() override { set_host_order(GetParam()); }
  void TearDown() override { set_host_order(HostOrder::kAscending); }
};

TEST_P(Routers, OfEveryKindChooseAsTheCpuDoes) {
  at::manual_seed(3);
  for (const Kind& kind : kinds()) {
    const std::int64_t X = kind.rule.experts;
    at::Tensor logits_TL = at::randn({50, kind.rule.logits()}) * 2;
    logits_TL.narrow(0, 0, 20).round_();  // many are equal
    logits_TL.narrow(0, 20, 5).mul_(20);  // sigmoids that are 1 in f64
    logits_TL[25].fill_(-0.25);           // all are equal
    const at::Tensor bias_X = kind.bias ? (at::randn({X}) * 0.3).mul(8).round().div(8) : at::Tensor();
    const Routes wanted = magister::choose_experts(kind.rule, logits_TL, bias_X);
    const GpuRoutes found = choose_experts(logits_TL, layer_with(kind.rule, bias_X), Queue{});
    EXPECT_TRUE(at::equal(found.experts_TR, wanted.experts_Tk)) << kind.name;
    EXPECT_TRUE(at::allclose(found.weights_TR, wanted.weights_Tk, 1e-6, 1e-9)) << kind.name;
    // A NaN logit shows in the weights of every chosen expert; they are k different ones.
    logits_TL[3][X - 1] = std::numeric_limits<float>::quiet_NaN();
    const GpuRoutes broken = choose_experts(logits_TL, layer_with(kind.rule, bias_X), Queue{});
    const at::Tensor experts_k = std::get<0>(broken.experts_TR[3].narrow(0, 0, kind.rule.per_token).sort());
    EXPECT_TRUE(at::isnan(broken.weights_TR[3].narrow(0, 0, kind.rule.per_token)).all().item<bool>()) << kind.name;
    EXPECT_TRUE((experts_k.diff() > 0).all().item<bool>() && experts_k[0].item<int>() >= 0 &&
                experts_k[-1].item<int>() < X)
        << kind.name;
    EXPECT_TRUE(at::equal(broken.weights_TR[4], found.weights_TR[4])) << kind.name;
  }
}

// Gemma 4: a learned factor for each expert.
TEST_P(Routers, WeightsHaveTheFactorsOfTheirExperts) {
  const at::Tensor logits_TX = at::randn({9, 40});
  GpuLayer layer = layer_with(plain_rule(40, 4, true));
  layer.expert_scales_X = at::rand({40}) + 0.5;
  const Routes wanted = magister::choose_experts(logits_TX, 4, true);
  const GpuRoutes found = choose_experts(logits_TX, layer, Queue{});
  EXPECT_TRUE(at::allclose(found.weights_TR,
                           wanted.weights_Tk * layer.expert_scales_X.index({wanted.experts_Tk.to(at::kLong)}), 1e-6));
}

INSTANTIATE_TEST_SUITE_P(Orders, Routers, testing::Values(HostOrder::kAscending, HostOrder::kDescending));

TEST(GpuExperts, ALogitThatIsNoNumberShows) {
  at::Tensor logits_TX = at::randn({3, 40});
  logits_TX[1][35] = logits_TX[2][0] = std::numeric_limits<float>::quiet_NaN();
  for (const bool normed : {false, true}) {
    const GpuRoutes routes = choose_experts(logits_TX, layer_with(plain_rule(40, 4, normed)), Queue{});
    EXPECT_TRUE(at::isnan(routes.weights_TR[1]).all().item<bool>());
    EXPECT_FALSE(at::isnan(routes.weights_TR[0]).any().item<bool>());
    EXPECT_TRUE(routes.experts_TR.equal(magister::choose_experts(logits_TX, 4, normed).experts_Tk));
  }
}

// Norms over the heads of two shards, the second of which holds a KV head of the first one, too.
class DividedHeads : public testing::TestWithParam<std::int64_t> {};

TEST_P(DividedHeads, AreNormedOverAllOfThem) {
  const std::int64_t T = 5, E = GetParam(), q = 3 * E, k = 2 * E, stride = q + 2 * k;
  const at::Tensor qkv_TQ = at::randn({T, stride}), q_norm = at::rand({q}) + 0.5, k_norm = at::rand({k}) + 0.5;
  at::Tensor squares_T2 = at::empty({T, 2}), normed_TQ = qkv_TQ.clone();
  const SumHeadSquares<float> sums{
      qkv_TQ.const_data_ptr<float>(), squares_T2.data_ptr<float>(), stride, q, q + E, k - E};
  launch(sums, sums.shape(T), Queue{});
  const at::Tensor wanted_T2 =
      at::stack({qkv_TQ.narrow(1, 0, q).square().sum(1), qkv_TQ.narrow(1, q + E, k - E).square().sum(1)}, 1);
  EXPECT_TRUE(at::allclose(squares_T2, wanted_T2, 1e-5));
  const NormHeads<float> norms{normed_TQ.data_ptr<float>(),
                               squares_T2.const_data_ptr<float>(),
                               q_norm.const_data_ptr<float>(),
                               k_norm.const_data_ptr<float>(),
                               stride,
                               q,
                               k,
                               100,
                               50,
                               1e-5f};
  launch(norms, norms.shape(T), Queue{});
  const auto scale = [&](std::int64_t which, double all) {
    return at::rsqrt(wanted_T2.narrow(1, which, 1) / all + 1e-5);
  };
  EXPECT_TRUE(at::allclose(normed_TQ.narrow(1, 0, q), qkv_TQ.narrow(1, 0, q) * scale(0, 100) * q_norm, 1e-5));
  EXPECT_TRUE(at::allclose(normed_TQ.narrow(1, q, k), qkv_TQ.narrow(1, q, k) * scale(1, 50) * k_norm, 1e-5));
  EXPECT_TRUE(at::equal(normed_TQ.narrow(1, q + k, k), qkv_TQ.narrow(1, q + k, k))) << "values are left alone";
}

// Heads of whole multiples of eight numbers are read 16 bytes at a time, others number by number.
INSTANTIATE_TEST_SUITE_P(Sizes, DividedHeads, testing::Values(20, 24, 512));

TEST(GpuExperts, AreSummedInTheirOrder) {
  at::manual_seed(2);
  constexpr std::int64_t T = 5;
  constexpr int k = 3;
  for (const std::int64_t D : {40, 33, 2600}) {
    const at::Tensor rows_ND = at::randn({T * k, D}).to(at::kBFloat16), weights_Tk = at::rand({T, k}),
                     row_of_Tk = at::randperm(T * k, at::kLong).to(at::kInt).view({T, k});
    at::Tensor out_TD = at::empty({T, D}, at::kBFloat16);
    const SumExperts<Bf16> kernel{
        data<Bf16>(rows_ND), data<std::int32_t>(row_of_Tk), data<float>(weights_Tk), data<Bf16>(out_TD), D, k};
    launch(kernel, kernel.shape(T), Queue{});
    at::Tensor wanted_TD = at::zeros({T, D});
    for (int i = 0; i < k; ++i)
      wanted_TD += weights_Tk.narrow(1, i, 1) * rows_ND.index_select(0, row_of_Tk.select(1, i)).to(at::kFloat);
    // One rounding to bf16; products and sums may be one operation.
    EXPECT_TRUE(at::allclose(out_TD.to(at::kFloat), wanted_TD, 4e-3, 1e-6)) << D;
    SumExperts<Bf16> without = kernel;
    without.weights_Tk = nullptr;
    launch(without, without.shape(T), Queue{});
    wanted_TD.zero_();
    for (int i = 0; i < k; ++i) wanted_TD += rows_ND.index_select(0, row_of_Tk.select(1, i)).to(at::kFloat);
    EXPECT_TRUE(at::allclose(out_TD.to(at::kFloat), wanted_TD, 4e-3, 1e-6)) << D << ": weights of inputs";
  }
}

TEST(GpuExperts, TokensAreGathered) {
  constexpr int k = 3;
  for (const std::int64_t D : {40, 33, 2600}) {
    const at::Tensor x_TD = at::randn({5, D}), weights_Tk = at::rand({5, k}),
                     route_N = at::tensor({14, 0, 4, 5}, at::kInt);
    for (const bool weighs : {false, true}) {
      at::Tensor out_ND = at::empty({4, D});
      const GatherTokens<float> kernel{data<float>(x_TD),
                                       data<std::int32_t>(route_N),
                                       weighs ? data<float>(weights_Tk) : nullptr,
                                       data<float>(out_ND),
                                       D,
                                       k};
      launch(kernel, kernel.shape(4), Queue{});
      const at::Tensor rows_ND = x_TD.index_select(0, at::tensor({4, 0, 1, 1}, at::kLong)),
                       weights_N1 = weights_Tk.reshape({-1, 1}).index_select(0, route_N.to(at::kLong));
      EXPECT_TRUE(at::equal(out_ND, weighs ? rows_ND * weights_N1 : rows_ND)) << D;
    }
  }
}

TEST(GpuExperts, TwoNormedRowsAreAdded) {
  for (const std::int64_t D : {40, 33, 2600}) {
    const at::Tensor a_TD = (at::randn({5, D}) * 3).to(at::kBFloat16), b_TD = at::randn({5, D}).to(at::kBFloat16),
                     a_D = at::rand({D}) + 0.5, b_D = at::rand({D}) + 0.5;
    const auto normed = [](const at::Tensor& x_TD, const at::Tensor& weight_D) {
      const at::Tensor wide_TD = x_TD.to(at::kFloat);
      return weight_D * wide_TD * at::rsqrt(wide_TD.square().mean(1, true) + 1e-3);
    };
    const at::Tensor wanted_TD = normed(a_TD, a_D) + normed(b_TD, b_D);
    EXPECT_TRUE(at::allclose(add_normed_rows(a_TD, a_D, b_TD, b_D, 1e-3, Queue{}), wanted_TD, 1e-5, 1e-5)) << D;
    EXPECT_TRUE(at::allclose(add_normed_rows(a_TD.to(at::kFloat), a_D, b_TD.to(at::kFloat), b_D, 1e-3, Queue{}),
                             wanted_TD, 1e-5, 1e-5))
        << D;
  }
}

}  // namespace gpu_experts_test
}  // namespace magister::gpu
