// The kernels of a mixture of experts on the host against the CPU code's rule and plain sums: ties, NaN, every size.
#include "model/gpu/gpu_experts.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "model/cpu/experts.h"
#include "model/gpu/expert_kernels.h"
#include "model/gpu/head_norm_kernels.h"

namespace magister::gpu {
namespace gpu_experts_test {

LayerShape shape_with(std::int64_t experts, std::int64_t per_token, bool normed) {
  LayerShape shape;
  shape.num_experts = experts;
  shape.experts_per_token = per_token;
  shape.norm_topk_prob = normed;
  return shape;
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
      const GpuRoutes found = choose_experts(logits_TX, shape_with(X, k, normed), Queue{});
      const Routes wanted = magister::choose_experts(logits_TX, k, normed);
      EXPECT_TRUE(at::equal(found.experts_Tk, wanted.experts_Tk)) << X << " experts, " << k << " a token";
      EXPECT_TRUE(at::allclose(found.weights_Tk, wanted.weights_Tk, 1e-6, 1e-7, /*equal_nan=*/true)) << X << " " << k;
    }
  }
}

TEST(GpuExperts, ALogitThatIsNoNumberShows) {
  at::Tensor logits_TX = at::randn({3, 40});
  logits_TX[1][35] = logits_TX[2][0] = std::numeric_limits<float>::quiet_NaN();
  for (const bool normed : {false, true}) {
    const GpuRoutes routes = choose_experts(logits_TX, shape_with(40, 4, normed), Queue{});
    EXPECT_TRUE(at::isnan(routes.weights_Tk[1]).all().item<bool>());
    EXPECT_FALSE(at::isnan(routes.weights_Tk[0]).any().item<bool>());
    EXPECT_TRUE(routes.experts_Tk.equal(magister::choose_experts(logits_TX, 4, normed).experts_Tk));
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
  }
}

}  // namespace gpu_experts_test
}  // namespace magister::gpu
