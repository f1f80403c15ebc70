// Experts in decoding passes on the host: the routes sorted on the device against the host's sort; the products of all
// experts in one launch against the plain way, expert by expert, with equal bits. Whole models: gpu_shards_test.cpp.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>

#include "magister/model/transformer.h"
#include "model/expert_weights.h"
#include "model/gpu/decoder_experts.h"
#include "model/gpu/gpu_experts.h"
#include "model/gpu/gpu_mlp.h"
#include "model/gpu/group_routes_kernel.h"
#include "model/gpu/grouped_product.h"

namespace magister::gpu {
namespace gpu_decoder_experts_test {

using namespace experts_alone;

struct Sorted {
  at::Tensor place_of_RT, route_N, items_I3;
  int R, k, S, X, rows;
};
// visible_R: 0 for idle rows.
Sorted sorted(const at::Tensor& experts_RT, const at::Tensor& visible_R, int S, int X) {
  const auto R = static_cast<int>(experts_RT.size(0)), T = static_cast<int>(experts_RT.size(1)), k = T - S;
  const int rows = item_rows(R, k, X), most = GroupRoutes::most_items(R, k, X, rows);
  const auto unset = [](std::int64_t count) { return at::full({count}, -7, at::kInt); };
  Sorted out{unset(R * T).view({R, T}), unset(R * T), unset(3 * most).view({most, 3}), R, k, S, X, rows};
  const GroupRoutes kernel{data<std::int32_t>(experts_RT),
                           data<std::int32_t>(visible_R),
                           data<std::int32_t>(out.place_of_RT),
                           data<std::int32_t>(out.route_N),
                           data<ExpertRows>(out.items_I3),
                           R,
                           k,
                           S,
                           X,
                           rows,
                           most};
  launch(kernel, kernel.shape(), Queue{});
  return out;
}

// Compares with the host's sort of the rows that are not idle.
void expect_sorted(const at::Tensor& experts_RT, const at::Tensor& visible_R, int S, int X) {
  const Sorted found = sorted(experts_RT, visible_R, S, X);
  const int R = found.R, k = found.k, T = k + S;
  const at::Tensor busy = visible_R.ne(0).nonzero().view({-1}),
                   chosen = experts_RT.narrow(1, 0, k).index_select(0, busy).contiguous();
  const ExpertGroups wanted = group_by_expert(chosen, X);
  const auto route = found.route_N.accessor<std::int32_t, 1>();
  const auto place = found.place_of_RT.accessor<std::int32_t, 2>();
  const auto item = found.items_I3.accessor<std::int32_t, 2>();
  const auto row_of = [&](std::int32_t entry) { return busy[entry / k].item<std::int64_t>(); };
  for (std::size_t n = 0; n < wanted.entry.size(); ++n) {
    const std::int64_t r = row_of(wanted.entry[n]), i = wanted.entry[n] % k;
    ASSERT_EQ(route[static_cast<std::int64_t>(n)], r * T + i) << "place " << n;
    ASSERT_EQ(place[r][i], n);
  }
  for (std::int64_t n = std::ssize(wanted.entry); n < R * k; ++n) ASSERT_EQ(route[n], 0) << "after the last route";
  for (std::int64_t r = 0; r < R; ++r) {
    for (int i = 0; i < k && visible_R[r].item<int>() == 0; ++i) ASSERT_EQ(place[r][i], -1) << "idle row " << r;
    for (int s = 0; s < S; ++s) {
      ASSERT_EQ(place[r][k + s], R * k + s * R + r);
      ASSERT_EQ(route[place[r][k + s]], r * T + k + s);
    }
  }
  std::int64_t next = 0;
  for (int x = 0; x < X; ++x) {
    const std::int64_t end = wanted.first[static_cast<std::size_t>(x) + 1];
    for (std::int64_t first = wanted.first[static_cast<std::size_t>(x)]; first < end; first += found.rows, ++next) {
      ASSERT_EQ(item[next][0], x);
      ASSERT_EQ(item[next][1], first);
      ASSERT_EQ(item[next][2], std::min<std::int64_t>(end - first, found.rows));
    }
  }
  for (; next < found.items_I3.size(0); ++next) ASSERT_EQ(item[next][2], 0) << "an item without work";
}

class SortedRoutes : public testing::TestWithParam<HostOrder> {
 protected:
  void SetUp() override { set_host_order(GetParam()); }
  void TearDown() override { set_host_order(HostOrder::kAscending); }
};

TEST_P(SortedRoutes, AreThoseOfTheHost) {
  at::manual_seed(5);
  for (const auto& [R, X, k, S] : std::vector<std::array<int, 4>>{
           {1, 8, 2, 0}, {3, 1, 1, 2}, {31, 6, 3, 1}, {33, 40, 5, 0}, {64, 300, 8, 1}, {256, 128, 8, 0}}) {
    at::Tensor experts_RT = at::empty({R, k + S}, at::kInt);
    for (int r = 0; r < R; ++r) {
      experts_RT[r].narrow(0, 0, k).copy_(std::get<0>(at::randperm(X, at::kInt).narrow(0, 0, k).sort()));
      for (int s = 0; s < S; ++s) experts_RT[r][k + s] = X + s;
    }
    expect_sorted(experts_RT, at::ones({R}, at::kInt), S, X);
    expect_sorted(experts_RT, at::randint(0, 2, {R}, at::kInt), S, X);
    expect_sorted(experts_RT, at::zeros({R}, at::kInt), S, X);
    experts_RT.narrow(1, 0, k).copy_(at::arange(X - k, X, at::kInt));  // all rows to the same experts
    expect_sorted(experts_RT, at::ones({R}, at::kInt), S, X);
  }
}
INSTANTIATE_TEST_SUITE_P(Orders, SortedRoutes, testing::Values(HostOrder::kAscending, HostOrder::kDescending));

TEST(RouteItems, AreFewAndEnough) {
  EXPECT_EQ(item_rows(1, 8, 128), 8);
  EXPECT_EQ(item_rows(64, 8, 128), 8);
  EXPECT_EQ(item_rows(128, 8, 128), 16);
  EXPECT_EQ(item_rows(256, 8, 128), 32);
  EXPECT_EQ(item_rows(12, 2, 2), 16) << "no more than the pass has";
  EXPECT_EQ(GroupRoutes::most_items(1, 8, 128, 8), 8);
  EXPECT_EQ(GroupRoutes::most_items(256, 8, 128, 32), 128 + 60);
}

// The rows of a pass through the layer's experts. visible_R: 0 for idle rows.
at::Tensor run(DecoderExperts& experts, const at::Tensor& normed_RD, const at::Tensor& visible_R) {
  experts.reserve();
  const auto multiply = [](const GpuLinear& one, const ProductRows& x_RK, at::Tensor& out_RN) {
    product_of_few(one, x_RK.x_MK, out_RN, Queue{});
  };
  at::Tensor input_RD = normed_RD.clone(), out_RD = at::full(normed_RD.sizes(), NAN, at::kFloat);
  experts.queue_routes(0, input_RD, visible_R, Queue{});
  experts.queue_up(0, input_RD, multiply, Queue{});
  input_RD.fill_(NAN);  // it is not read any more
  experts.queue_down(0, out_RD, multiply, Queue{});
  return out_RD;
}

at::Tensor plain_way(const GpuWeights& weights, const at::Tensor& normed_RD) {
  const GpuLayer& layer = weights.layers[0];
  return run_experts(
      layer, normed_RD, normed_RD,
      [&](const GpuExpert& expert, const at::Tensor& rows_RD) {
        const at::Tensor up_RF = product(expert.gate_up_proj, rows_RD, at::kBFloat16, Queue{}),
                         middle_RF = at::empty({rows_RD.size(0), expert.down_proj.inputs}, at::kBFloat16);
        activate(function_of(layer), up_RF, {middle_RF}, Queue{});
        return product(expert.down_proj, middle_RF, at::kFloat, Queue{});
      },
      Queue{});
}

// Compares passes of several sizes, and each row alone.
void expect_equal_bits(const GpuWeights& weights, const char* name) {
  DecoderExperts experts(weights);
  ASSERT_TRUE(experts.work()) << name;
  for (const std::int64_t R : {1, 5, 33, 64}) {
    const at::Tensor normed_RD = at::randn({R, weights.config.hidden_size}).to(at::kBFloat16),
                     visible_R = at::ones({R}, at::kInt), wanted_RD = plain_way(weights, normed_RD),
                     got_RD = run(experts, normed_RD, visible_R);
    ASSERT_TRUE(at::equal(got_RD, wanted_RD)) << name << ", " << R << " rows";
    ASSERT_GT(wanted_RD.abs().max().item<double>(), 0.1);
    if (R > 5) continue;
    for (std::int64_t r = 0; r < R; ++r)
      ASSERT_TRUE(at::equal(run(experts, normed_RD.narrow(0, r, 1), visible_R.narrow(0, r, 1)), got_RD.narrow(0, r, 1)))
          << name << ": row " << r << " alone";
  }
  EXPECT_EQ(experts.num_bytes(), DecoderExperts::planned_bytes(weights.config, weights.partition)) << name;
}

TEST(DecoderExperts, OfEveryRouterHaveTheBitsOfThePlainWay) {
  at::manual_seed(11);
  expect_equal_bits(weights_with({}), "softmax");
  expect_equal_bits(weights_with({.X = 1, .k = 1}), "one expert");
  expect_equal_bits(weights_with({.X = 40, .k = 5, .normed = false}), "many experts");
  expect_equal_bits(weights_with({.shared = 2,
                                  .shared_F = 40,
                                  .router = {.scores = Scores::kSigmoid,
                                             .choice_bias = true,
                                             .groups = 3,
                                             .chosen_groups = 2,
                                             .scaling = 1.7,
                                             .least_sum = 1e-20}}),
                    "groups and shared experts");
  // One expert whose weight is not divided by itself.
  expect_equal_bits(
      weights_with(
          {.k = 1, .shared = 1, .router = {.scores = Scores::kSigmoid, .weighs_inputs = true}, .normed = false}),
      "weights of inputs");
  expect_equal_bits(weights_with({.F = 45, .biases = true, .swiglu_limit = 1.0f}), "limits, biases, odd sizes");
}

TEST(DecoderExperts, OfEveryFormatHaveTheBitsOfThePlainWay) {
  at::manual_seed(12);
  for (const auto& [type, group] : std::vector<std::pair<QuantType, std::int64_t>>{{QuantType::kInt8, 0},
                                                                                   {QuantType::kInt8, 32},
                                                                                   {QuantType::kInt4, 32},
                                                                                   {QuantType::kInt4, 64},
                                                                                   {QuantType::kInt4, 128}})
    expect_equal_bits(weights_with({.D = 128, .F = 96, .shared = 1, .scheme = {type, group}}),
                      type == QuantType::kInt8 ? "int8" : "int4");
  expect_equal_bits(weights_with({.D = 128, .F = 96, .biases = true, .swiglu_limit = 7, .mxfp4 = true}), "MXFP4");
}

// The products of prompts round x to 8-bit floats, too; those of decoding passes do not.
TEST(DecoderExperts, OfEightBitFloatsMultiplyWhatTheyStandFor) {
  at::manual_seed(16);
  const GpuWeights weights = weights_with({.D = 128, .F = 96, .biases = true, .fp8 = true});
  const GpuLayer& layer = weights.layers[0];
  DecoderExperts experts(weights);
  ASSERT_TRUE(experts.work());
  const auto multiply = [](const GpuLinear& one, const at::Tensor& x_MK) {
    return at::mm(x_MK.to(at::kFloat), plain_weight(one, at::kFloat, Queue{}).t()) + one.bias_N;
  };
  const at::Tensor normed_RD = at::randn({33, 128}).to(at::kBFloat16),
                   wanted_RD = run_experts(
                       layer, normed_RD, normed_RD,
                       [&](const GpuExpert& expert, const at::Tensor& rows_RD) {
                         const at::Tensor middle_RF = at::empty({rows_RD.size(0), 96}, at::kBFloat16);
                         activate(function_of(layer), multiply(expert.gate_up_proj, rows_RD).to(at::kBFloat16),
                                  {middle_RF}, Queue{});
                         return multiply(expert.down_proj, middle_RF);
                       },
                       Queue{}),
                   got_RD = run(experts, normed_RD, at::ones({33}, at::kInt));
  const double apart = ((got_RD - wanted_RD).norm() / wanted_RD.norm()).item<double>();
  std::printf("fp8: %.1e from plain products\n", apart);
  EXPECT_LT(apart, 2e-3);
  for (const std::int64_t r : {0, 32})
    EXPECT_TRUE(at::equal(run(experts, normed_RD.narrow(0, r, 1), at::ones({1}, at::kInt)), got_RD.narrow(0, r, 1)));
}

// Every code of e4m3, by rows of x with a single 1.
TEST(SmallFloats, HaveTheirValues) {
  constexpr std::int64_t N = 8, K = 32;
  at::Tensor codes_NK = at::arange(256, at::kInt).to(at::kByte).view({N, K});
  codes_NK[3][31] = codes_NK[7][31] = 0;  // NaN
  const at::Tensor x_MK = at::eye(K).to(at::kBFloat16), scales_N = at::rand({N}) + 0.5;
  at::Tensor out_MN = at::empty({K, N});
  const auto multiply = [&] {
    const ExpertPlace place{codes_NK.data_ptr<std::uint8_t>(), nullptr, nullptr, nullptr, scales_N.data_ptr<float>()};
    const ExpertRows item{0, 0, K};
    const StoredWeight weight{.row_bytes = K, .N = N, .K = K, .offset = kFloatCodes};
    grouped_product({weight, data<Bf16>(x_MK), K, nullptr, out_MN.data_ptr(), N, K, true}, &place, &item, 1, 8, 0, true,
                    Queue{});
    return out_MN.t();
  };
  EXPECT_TRUE(at::equal(multiply(), codes_NK.view(at::kFloat8_e4m3fn).to(at::kFloat) * scales_N.unsqueeze(1)));
  codes_NK[3][31] = 0x7f;
  codes_NK[7][31] = 0xff;
  EXPECT_TRUE(at::equal(multiply().isnan().all(1).nonzero().view({-1}), at::tensor({3, 7}, at::kLong)));
}

TEST(SmallFloats, PackedNumbersStayTheSame) {
  at::manual_seed(17);
  for (const auto& [N, K, lead] : std::vector<std::array<std::int64_t, 3>>{{40, 96, 0}, {7, 100, 16}, {3, 45, 5}}) {
    const at::Tensor numbers_NK = mxfp4_numbers(N, K, lead);
    GpuLinear linear = to_device({numbers_NK.to(at::kBFloat16), {}}, at::kCPU);
    ASSERT_TRUE(to_mxfp4(linear, lead, Queue{}));
    EXPECT_FALSE(linear.weight_NK.defined());
    EXPECT_TRUE(at::equal(plain_weight(linear, at::kFloat, Queue{}), numbers_NK));
    EXPECT_TRUE(at::equal(product(linear, at::eye(K).to(at::kBFloat16), at::kFloat, Queue{}), numbers_NK.t()));
    EXPECT_LT(linear.num_bytes(), N * (K / 2 + K / 8 + 24));
    at::Tensor other_NK = numbers_NK.to(at::kBFloat16);
    other_NK[N - 1].narrow(0, K - 2, 2).copy_(at::tensor({6.0, 5.0}));
    GpuLinear kept = to_device({other_NK, {}}, at::kCPU);
    EXPECT_FALSE(to_mxfp4(kept, lead, Queue{})) << "5 has no code where 6 has one";
    EXPECT_TRUE(at::equal(kept.weight_NK, other_NK));
  }
}

// Rows may choose as unevenly as they like: all rows the same expert, and one that none chooses.
TEST(DecoderExperts, UnevenChoices) {
  at::manual_seed(13);
  GpuWeights weights = weights_with({.X = 5, .k = 2});
  GpuLinear& router = weights.layers[0].router;
  router.bias_N = at::tensor({0.0f, 50.0f, -50.0f, 0.0f, 0.0f});
  expect_equal_bits(weights, "one full and one empty expert");
}

// No expert reads an idle row, whatever is in it, and its sum is 0.
TEST(DecoderExperts, IdleRowsChooseNothing) {
  at::manual_seed(14);
  const GpuWeights weights = weights_with({.shared = 0});
  DecoderExperts experts(weights);
  at::Tensor normed_RD = at::randn({6, 96}).to(at::kBFloat16);
  const at::Tensor wanted_RD = run(experts, normed_RD.narrow(0, 0, 4), at::ones({4}, at::kInt));
  normed_RD.narrow(0, 4, 2).fill_(NAN);
  const at::Tensor got_RD = run(experts, normed_RD, at::tensor({1, 9, 3, 1, 0, 0}, at::kInt));
  EXPECT_TRUE(at::equal(got_RD.narrow(0, 0, 4), wanted_RD));
  EXPECT_TRUE(at::equal(got_RD.narrow(0, 4, 2), at::zeros({2, 96})));
}

TEST(DecoderExperts, SeveralFormatsInALayerAreLeftToThePlainWay) {
  GpuWeights weights = weights_with({});
  const GpuWeights codes = weights_with({.scheme = {QuantType::kInt8, 32}});
  weights.layers[0].experts[3].down_proj = codes.layers[0].experts[3].down_proj;
  EXPECT_FALSE(DecoderExperts(weights).work());
}

}  // namespace gpu_decoder_experts_test
}  // namespace magister::gpu
