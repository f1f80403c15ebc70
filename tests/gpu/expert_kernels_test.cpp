// The kernels of MLPs and experts on the GPU against their emulation on the host; see kernels_test.cpp.
#include "model/gpu/expert_kernels.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

#include "gpu/both_queues.h"
#include "model/gpu/grouped_product.h"
#include "model/gpu/mlp_kernels.h"
#include "model/gpu/pack_mxfp4_kernel.h"
#include "model/gpu/route_kernels.h"

namespace magister::gpu::kernels_test {
namespace {

using Types = testing::Types<float, Bf16>;

template <typename A>
class Mlps : public testing::Test {
 protected:
  void SetUp() override { at::manual_seed(5); }
};
TYPED_TEST_SUITE(Mlps, Types);

// A router of each kind: the choice, the inputs of experts, the sum of their outputs, and that with an MLP beside them.
TYPED_TEST(Mlps, Experts) {
  using A = TypeParam;
  using Scores = RouteRule::Scores;
  constexpr std::int64_t T = 13, D = 300, R = 7;
  constexpr int X = 72, k = 6;
  std::vector<RouteRule> rules;
  for (const Scores scores : {Scores::kPlain, Scores::kSoftmax, Scores::kSigmoid, Scores::kSparseMixer}) {
    for (const bool normed : {false, true}) {
      const bool grouped = scores == Scores::kSoftmax || scores == Scores::kSigmoid;
      rules.push_back({.scores = scores,
                       .X = X,
                       .k = k,
                       .S = R - k,
                       .L = X,
                       .normed = normed,
                       .by_logits = !grouped,
                       .G = grouped ? 8 : 1,
                       .chosen_groups = 3,
                       .groups_by_best = normed,
                       .scaling = 2.5,
                       .margin = 0.05});
    }
  }
  for (const RouteRule& rule : rules) {
    at::Tensor logits_TX = at::randn({T, X}) * 3;
    logits_TX.narrow(0, 0, 4).round_();  // many are equal
    const Tensors inputs = {logits_TX,
                            at::zeros({T, R}, at::kInt),
                            at::zeros({T, R}),
                            at::randn({T * R, D}).to(kType<A>),
                            at::randperm(T * R, at::kInt),
                            at::zeros({T, D}, kType<A>),
                            rule.G > 1 ? at::rand({X}) : at::zeros({X}),
                            at::rand({D}) + 0.5,
                            at::zeros({T * R, D}, kType<A>),
                            at::zeros({T, D})};
    const Both both = on_both(inputs, [&rule](const Tensors& t, const Queue& queue) {
      const ChooseExperts choose{
          data<float>(t[0]), data<float>(t[6]), nullptr, data<std::int32_t>(t[1]), data<float>(t[2]), T, rule};
      launch(choose, choose.shape(), queue);
      const GatherTokens<A> gather{data<A>(t[3]), data<std::int32_t>(t[4]), data<float>(t[2]), data<A>(t[8]), D, R};
      launch(gather, gather.shape(T * R), queue);
      const SumExperts<A> sum{data<A>(t[3]), data<std::int32_t>(t[4]), data<float>(t[2]), data<A>(t[5]), D, R};
      launch(sum, sum.shape(T), queue);
      const AddNormedRows<A> add{
          data<A>(t[5]), data<A>(t[3]), data<float>(t[7]), data<float>(t[7]), data<float>(t[9]), D, 1e-5f};
      launch(add, add.shape(T), queue);
    });
    EXPECT_TRUE(at::equal(both.device[1], both.host[1])) << "the same experts";
    expect_close<float>(both.device[2], both.host[2]);
    for (const std::size_t rows : {5, 8}) expect_close<A>(both.device[rows], both.host[rows]);
    expect_close<A>(both.device[9], both.host[9]);
  }
}

TYPED_TEST(Mlps, ActivateRows) {
  using A = TypeParam;
  std::vector<MlpFunction> functions = {{.gated = false, .xielu = true, .alpha_p = 0.8f, .alpha_n = 0.7f},
                                        {.swiglu_alpha = 1.7f, .swiglu_limit = 2.0f}};
  for (int i = 0; i < kNumActivations; ++i) {
    for (const bool gated : {false, true})
      functions.push_back({.activation = static_cast<Activation>(i), .gated = gated});
  }
  for (const MlpFunction& function : functions)
    for (const std::int64_t F : {1, 21, 2104}) {
      const Tensors inputs = {(at::randn({6, function.gated ? 2 * F : F}) * 4).to(kType<A>),
                              at::zeros({6, F}, kType<A>)};
      const Both both = on_both(inputs, [&](const Tensors& t, const Queue& queue) {
        const ActivateRows<A> kernel{data<A>(t[0]), data<A>(t[1]), F, function};
        launch(kernel, kernel.shape(6), queue);
      });
      expect_close<A>(both.device[1], both.host[1]);
    }
}

// A decoding pass: routes sorted by expert, and the products of all experts for each format and number of rows.
TEST(DecodingExperts, GroupRoutesAndGroupedProduct) {
  at::manual_seed(6);
  constexpr int X = 9, k = 3, K = 160, N = 72;
  for (const int R : {1, 7, 64, 200}) {
    for (const bool aligned : {true, false}) {
      const int rows = aligned ? item_rows(R, k, X) : 32, I = GroupRoutes::most_items(R, k, X, rows);
      at::Tensor experts_Rk = at::empty({R, k}, at::kInt);
      for (int r = 0; r < R; ++r) experts_Rk[r].copy_(std::get<0>(at::randperm(X, at::kInt).narrow(0, 0, k).sort()));
      const Tensors inputs = {experts_Rk,
                              at::randint(0, 4, {R}, at::kInt),
                              at::zeros({R, k}, at::kInt),
                              at::zeros({R * k}, at::kInt),
                              at::zeros({I, 3}, at::kInt),
                              at::randn({X, N, K}).to(at::kBFloat16),
                              at::randn({R * k, K}).to(at::kBFloat16),
                              at::randn({X, N}),
                              at::zeros({R * k, N})};
      const Both both = on_both(inputs, [&](const Tensors& t, const Queue& queue) {
        auto* const items = reinterpret_cast<ExpertRows*>(data<std::int32_t>(t[4]));
        const GroupRoutes group{data<std::int32_t>(t[0]),
                                data<std::int32_t>(t[1]),
                                data<std::int32_t>(t[2]),
                                data<std::int32_t>(t[3]),
                                items,
                                R,
                                k,
                                0,
                                X,
                                rows,
                                I};
        launch(group, group.shape(), queue);
        at::Tensor places_X = at::zeros({X * static_cast<std::int64_t>(sizeof(ExpertPlace))}, at::kByte);
        for (int x = 0; x < X; ++x)
          reinterpret_cast<ExpertPlace*>(places_X.data_ptr())[x] = {data<unsigned char>(t[5]) + x * N * K * 2, nullptr,
                                                                    nullptr, data<float>(t[7]) + x * N, nullptr};
        const at::Tensor there_X = places_X.to(device_of(queue));
        const StoredWeight weight{.row_bytes = K * 2, .N = N, .K = K};
        grouped_product({weight, data<Bf16>(t[6]), K, nullptr, t[8].data_ptr(), N, rows, true},
                        reinterpret_cast<const ExpertPlace*>(there_X.data_ptr()), items, I, 16, 0, aligned, queue);
        if (!queue.on_host()) t[8].cpu();  // the places are in use until then
      });
      for (const std::size_t exact : {2, 3, 4}) EXPECT_TRUE(at::equal(both.device[exact], both.host[exact])) << exact;
      expect_close<float>(both.device[8], both.host[8]);
    }
  }
}

TEST(DecodingExperts, PackMxfp4) {
  constexpr std::int64_t N = 40, K = 200, lead = 16, G = (lead + K - 1) / 32 + 1, bytes = (K + 31) / 32 * 16;
  const at::Tensor numbers =
      at::tensor({0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0});
  const at::Tensor of_group = at::pow(2.0, at::randint(-9, 3, {N, G}).to(at::kFloat)).repeat_interleave(32, 1);
  const Tensors inputs = {
      (numbers.index_select(0, at::randint(15, {N * K}, at::kLong)).view({N, K}) * of_group.narrow(1, lead, K))
          .to(at::kBFloat16),
      at::zeros({N, bytes}, at::kByte), at::zeros({N, G}, at::kShort), at::zeros({1}, at::kInt)};
  const Both both = on_both(inputs, [&](const Tensors& t, const Queue& queue) {
    const PackMxfp4 kernel{data<Bf16>(t[0]),
                           data<unsigned char>(t[1]),
                           data<std::uint16_t>(t[2]),
                           data<std::int32_t>(t[3]),
                           N,
                           K,
                           G,
                           lead};
    launch(kernel, kernel.shape(), queue);
  });
  for (std::size_t i = 1; i < inputs.size(); ++i) EXPECT_TRUE(at::equal(both.device[i], both.host[i])) << i;
  EXPECT_EQ(both.host[3].item<int>(), 0) << "all have codes";
}

}  // namespace
}  // namespace magister::gpu::kernels_test
