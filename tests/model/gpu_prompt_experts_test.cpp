// Experts in passes of prompts on the host: the routes sorted by three kernels against the host's sort; the products of
// all experts in one launch against plain products in f64; whole layers against the plain way, expert by expert; and
// which layers are multiplied how. Whole models: families_test.py.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <numeric>

#include "magister/model/pass_memory.h"
#include "model/expert_weights.h"
#include "model/gpu/dequantize_experts_kernel.h"
#include "model/gpu/expert_product_kernel.h"
#include "model/gpu/gpu_experts.h"
#include "model/gpu/gpu_mlp.h"
#include "model/gpu/prompt_experts.h"
#include "model/gpu/prompt_routes_kernels.h"
#include "model/gpu/prompt_rule.h"

namespace magister::gpu {
namespace gpu_prompt_experts_test {

using namespace experts_alone;

class InBothOrders : public testing::TestWithParam<HostOrder> {
 protected:
  void SetUp() override { set_host_order(GetParam()); }
  void TearDown() override { set_host_order(HostOrder::kAscending); }
};
using PromptRoutesOnHost = InBothOrders;
using ExpertProductOnHost = InBothOrders;
INSTANTIATE_TEST_SUITE_P(Orders, PromptRoutesOnHost, testing::Values(HostOrder::kAscending, HostOrder::kDescending));
INSTANTIATE_TEST_SUITE_P(Orders, ExpertProductOnHost, testing::Values(HostOrder::kAscending, HostOrder::kDescending));

void expect_sorted(const at::Tensor& experts_TR, int S, int X) {
  constexpr int kItemRows = 128;
  const int T = static_cast<int>(experts_TR.size(0)), R = static_cast<int>(experts_TR.size(1)), k = R - S,
            B = PromptRoutes::blocks_of(T), I = most_expert_items(T * k, X, kItemRows);
  const auto unset = [](std::int64_t rows, std::int64_t columns) { return at::full({rows, columns}, -7, at::kInt); };
  const at::Tensor counts = unset(B, X), first = unset(1, X), items = unset(I, 3), places = unset(T, R),
                   inverse = unset(T * R, 1);
  const PromptRoutes routes{data<std::int32_t>(experts_TR), T, k, S, X};
  start(CountRoutes{routes, data<std::int32_t>(counts)}, Queue{});
  start(
      PlaceExperts{data<std::int32_t>(counts), data<std::int32_t>(first), data<ExpertRows>(items), B, X, kItemRows, I},
      Queue{});
  start(PlaceRoutes{routes, data<std::int32_t>(counts), data<std::int32_t>(first), data<std::int32_t>(places),
                    data<std::int32_t>(inverse)},
        Queue{});
  const ExpertGroups wanted = group_by_expert(experts_TR.narrow(1, 0, k).contiguous(), X);
  for (int n = 0; n < T * k; ++n) {
    const std::int64_t token = wanted.entry[static_cast<std::size_t>(n)] / k,
                       i = wanted.entry[static_cast<std::size_t>(n)] % k;
    ASSERT_EQ(inverse[n].item<int>(), token * R + i) << "place " << n;
    ASSERT_EQ(places[token][i].item<int>(), n);
  }
  for (int n = 0; n < T * S; ++n) {
    const int place = T * k + n, route = n % T * R + k + n / T;
    ASSERT_EQ(inverse[place].item<int>(), route);
    ASSERT_EQ(places[n % T][k + n / T].item<int>(), place);
  }
  std::int64_t next = 0;
  for (int x = 0; x < X; ++x) {
    const std::int64_t end = wanted.first[static_cast<std::size_t>(x) + 1];
    for (std::int64_t row = wanted.first[static_cast<std::size_t>(x)]; row < end; row += kItemRows, ++next) {
      ASSERT_LT(next, I);
      const at::Tensor item =
          at::tensor({std::int64_t{x}, row, std::min<std::int64_t>(end - row, kItemRows)}, at::kInt);
      ASSERT_TRUE(at::equal(items[next], item)) << "item " << next;
    }
  }
  for (; next < I; ++next) ASSERT_EQ(items[next][2].item<int>(), 0) << "an item without work";
}

TEST_P(PromptRoutesOnHost, AreSortedAsOnTheHost) {
  at::manual_seed(5);
  for (const auto& [T, X, k, S] : std::vector<std::array<int, 4>>{
           {1, 8, 2, 0}, {255, 1, 1, 2}, {256, 6, 3, 1}, {257, 40, 5, 0}, {700, 600, 4, 1}, {2400, 5, 2, 0}}) {
    at::Tensor experts_TR = at::empty({T, k + S}, at::kInt);
    for (int t = 0; t < T; ++t) {
      experts_TR[t].narrow(0, 0, k).copy_(std::get<0>(at::randperm(X, at::kInt).narrow(0, 0, k).sort()));
      for (int s = 0; s < S; ++s) experts_TR[t][k + s] = X + s;
    }
    expect_sorted(experts_TR, S, X);
    experts_TR.narrow(1, 0, k).copy_(at::arange(X - k, X, at::kInt));  // all tokens to the same experts
    expect_sorted(experts_TR, S, X);
  }
}

template <typename A>
constexpr at::ScalarType kTypeOf = sizeof(A) == sizeof(float) ? at::kFloat : at::kBFloat16;

// Experts with these rows, one after the other: rows, weights, biases, scales of outputs, and the token of each row.
template <typename Kernel>
struct Products {
  using A = typename Kernel::Number;
  static constexpr std::int64_t T = 61, K = 200, M = 264;
  static constexpr int R = 3;
  std::vector<std::int64_t> counts;
  at::Tensor x_TK, weights_XMK, bias_XM, scales_XM, route_N, places_X;

  explicit Products(std::vector<std::int64_t> rows) : counts(std::move(rows)) {
    const auto X = std::ssize(counts);
    const std::int64_t N = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    // Rows of a residual stream: a few numbers are far larger than the others.
    x_TK = (at::randn({T, K}) * (1 + 20 * (at::rand({K}) > 0.97).to(at::kFloat))).to(kTypeOf<A>);
    weights_XMK = (at::randn({X, M, K}) * 0.05 * (0.5 + at::rand({X, M, 1}))).to(kTypeOf<A>);
    bias_XM = at::randn({X, M});
    // Only codes of 8-bit floats, which become bf16, have scales.
    scales_XM = kTypeOf<A> == at::kFloat ? at::ones({X, M}) : at::rand({X, M}) + 0.5;
    route_N = at::randint(T * R, {N}, at::kInt);
    places_X = at::empty({X * static_cast<std::int64_t>(sizeof(ExpertPlace))}, at::kByte);
    for (std::int64_t x = 0; x < X; ++x)
      reinterpret_cast<ExpertPlace*>(places_X.data_ptr())[x] = {data<unsigned char>(weights_XMK[x]), nullptr, nullptr,
                                                                data<float>(bias_XM[x]), data<float>(scales_XM[x])};
  }
  // The products of items {expert, first row, rows} for all rows; rows of no item are NaN.
  at::Tensor multiply(const at::Tensor& items_I3, at::ScalarType type, bool by_route) const {
    const at::Tensor rows_NK = by_route ? x_TK : x_TK.index_select(0, tokens_N()).contiguous();
    at::Tensor out_NM = at::full({route_N.size(0), M}, NAN, type);
    start(Kernel{{data<A>(rows_NK), K, by_route ? data<std::int32_t>(route_N) : nullptr, R,
                  reinterpret_cast<const ExpertPlace*>(places_X.data_ptr()), data<ExpertRows>(items_I3),
                  static_cast<int>(items_I3.size(0)), static_cast<std::int64_t>(sizeof(A)) * K, static_cast<int>(M),
                  static_cast<int>(K), out_NM.data_ptr(), type == at::kFloat}},
          Queue{});
    return out_NM;
  }
  at::Tensor tokens_N() const { return route_N.to(at::kLong).div(R, "trunc"); }
  at::Tensor items() const {
    std::vector<std::int32_t> items;
    std::int64_t first = 0;
    for (std::int64_t x = 0; x < std::ssize(counts); first += counts[static_cast<std::size_t>(x)], ++x) {
      const std::int64_t count = counts[static_cast<std::size_t>(x)];
      for (std::int64_t row = 0; row < count; row += Kernel::kRows)
        items.insert(items.end(), {static_cast<std::int32_t>(x), static_cast<std::int32_t>(first + row),
                                   static_cast<std::int32_t>(std::min<std::int64_t>(count - row, Kernel::kRows))});
    }
    items.insert(items.end(), {0, 0, 0});  // without work
    return at::tensor(items, at::kInt).view({-1, 3});
  }
  std::int64_t expert_of(std::int64_t row) const {
    std::int64_t x = 0;
    for (; row >= counts[static_cast<std::size_t>(x)]; ++x) row -= counts[static_cast<std::size_t>(x)];
    return x;
  }
};

template <typename Kernel>
void expect_near_plain_products() {
  at::manual_seed(6);
  const Products<Kernel> products({0, 1, 127, 0, 128, 129, 1000});
  const at::Tensor items_I3 = products.items(), got_NM = products.multiply(items_I3, at::kFloat, true);
  const std::int64_t N = got_NM.size(0);
  const at::Tensor rows_NK = products.x_TK.index_select(0, products.tokens_N()).to(at::kDouble);
  std::int64_t first = 0;
  for (std::size_t x = 0; x < products.counts.size(); first += products.counts[x], ++x) {
    const auto i = static_cast<std::int64_t>(x);
    const at::Tensor of_expert = rows_NK.narrow(0, first, products.counts[x]),
                     weight_KM = (products.weights_XMK[i].to(at::kDouble) * products.scales_XM[i].unsqueeze(1)).t(),
                     wanted = at::mm(of_expert, weight_KM) + products.bias_XM[i],
                     sizes = at::mm(of_expert.abs(), weight_KM.abs()) + products.bias_XM[i].abs();
    if (products.counts[x] == 0) continue;
    const double apart =
        ((got_NM.narrow(0, first, products.counts[x]) - wanted).abs() / sizes).max().template item<double>();
    EXPECT_LT(apart, 2e-6) << products.counts[x] << " rows";
  }
  EXPECT_TRUE(at::equal(products.multiply(items_I3, at::kFloat, false), got_NM)) << "gathered rows";
  for (const std::int64_t row : {std::int64_t{0}, std::int64_t{1}, std::int64_t{127}, std::int64_t{300}, N - 1}) {
    const at::Tensor alone = at::tensor({products.expert_of(row), row, std::int64_t{1}}, at::kInt).view({1, 3});
    EXPECT_TRUE(at::equal(products.multiply(alone, at::kFloat, true)[row], got_NM[row])) << "row " << row << " alone";
  }
  if (kTypeOf<typename Kernel::Number> == at::kBFloat16) {
    EXPECT_TRUE(at::equal(products.multiply(items_I3, at::kBFloat16, true), got_NM.to(at::kBFloat16)));
  }
}

TEST_P(ExpertProductOnHost, IsNearPlainProductsForAnyNumberOfRows) { expect_near_plain_products<ExpertProduct>(); }
TEST_P(ExpertProductOnHost, InF32IsNearPlainProductsToo) { expect_near_plain_products<FloatExpertProduct>(); }

// All codes, not a number among them, of two experts.
TEST(WidenExperts, GivesWhatE4m3StandsFor) {
  constexpr std::int64_t C = 16 * (4 * 256 + 3);
  const at::Tensor codes_XC = at::arange(2 * C).remainder(256).to(at::kByte),
                   out_XC = at::full({2 * C}, -7, at::kBFloat16);
  std::array<ExpertPlace, 2> places = {};
  for (std::size_t x = 0; x < places.size(); ++x)
    places[x].rows = data<std::uint8_t>(codes_XC) + static_cast<std::int64_t>(x) * C;
  start(WidenExperts{C, places.data(), 2, data<Bf16>(out_XC)}, Queue{});
  const at::Tensor wanted_XC = codes_XC.view(at::kFloat8_e4m3fn).to(at::kBFloat16);
  EXPECT_TRUE(at::allclose(out_XC, wanted_XC, 0, 0, /*equal_nan=*/true));
}

// Summed in f32. A row's bits are its own, but where the weight is in 8-bit floats, whose numbers multiply x as it is.
at::Tensor plain_product(const GpuLinear& linear, const at::Tensor& x_MK) {
  if (!linear.fp8_NK.defined()) return product(linear, x_MK, at::kFloat, Queue{});
  const at::Tensor out_MN = at::mm(x_MK.to(at::kFloat), plain_weight(linear, at::kFloat, Queue{}).t());
  return linear.bias_N.defined() ? out_MN + linear.bias_N : out_MN;
}

at::Tensor plain_expert(const GpuLayer& layer, const GpuExpert& expert, const at::Tensor& rows_RD) {
  const at::Tensor middle_RF = at::empty({rows_RD.size(0), expert.down_proj.inputs}, rows_RD.options());
  activate(function_of(layer), plain_product(expert.gate_up_proj, rows_RD).to(rows_RD.scalar_type()), {middle_RF},
           Queue{});
  return plain_product(expert.down_proj, middle_RF);
}

// Compares passes of several sizes with the plain way, and some rows alone.
void expect_near(const GpuWeights& weights, const char* name, double limit = 3e-3) {
  const PromptExperts experts(weights);
  const GpuLayer& layer = weights.layers[0];
  ASSERT_TRUE(experts.has(layer)) << name;
  const auto one = [&](const GpuExpert& expert, const at::Tensor& rows_RD) {
    return plain_expert(layer, expert, rows_RD);
  };
  double most = 0;
  for (const std::int64_t T : {1, 5, 290}) {
    const at::Tensor normed_TD = at::randn({T, weights.config.hidden_size}).to(weights.dtype),
                     wanted_TD = run_experts(layer, normed_TD, normed_TD, one, Queue{}),
                     got_TD = experts.run(layer, normed_TD, normed_TD, one, Queue{});
    ASSERT_EQ(got_TD.scalar_type(), at::kFloat);
    const double apart = ((got_TD - wanted_TD).norm() / wanted_TD.norm()).item<double>();
    most = std::max(most, apart);
    EXPECT_LT(apart, limit) << name << ", " << T << " tokens";
    for (std::int64_t t = 0; t < T; t += 97) {
      const at::Tensor row_1D = normed_TD.narrow(0, t, 1);
      ASSERT_TRUE(at::equal(experts.run(layer, row_1D, row_1D, one, Queue{}), got_TD.narrow(0, t, 1)))
          << name << ": token " << t << " alone";
    }
  }
  std::printf("%s: %.1e from products of one expert after the other\n", name, most);
}

TEST(PromptExperts, OfEveryRouterAreNearThePlainWay) {
  at::manual_seed(11);
  expect_near(weights_with({}), "softmax");
  expect_near(weights_with({.X = 40, .k = 5, .normed = false}), "many experts");
  expect_near(weights_with({.shared = 2,
                            .shared_F = 40,
                            .router = {.scores = Scores::kSigmoid,
                                       .choice_bias = true,
                                       .groups = 3,
                                       .chosen_groups = 2,
                                       .scaling = 1.7,
                                       .least_sum = 1e-20}}),
              "groups and shared experts");
  expect_near(
      weights_with(
          {.k = 1, .shared = 1, .router = {.scores = Scores::kSigmoid, .weighs_inputs = true}, .normed = false}),
      "weights of inputs");
  expect_near(weights_with({.D = 104, .F = 40, .biases = true, .swiglu_limit = 1.0f}), "limits, biases, other sizes");
}

TEST(PromptExperts, OfEveryFormatAreNearThePlainWay) {
  at::manual_seed(12);
  expect_near(weights_with({.D = 104, .F = 40, .biases = true, .dtype = at::kFloat}), "f32", 1e-6);
  expect_near(weights_with({.shared = 1,
                            .router = {.scores = Scores::kSigmoid, .weighs_inputs = true},
                            .normed = false,
                            .dtype = at::kFloat}),
              "f32, weights of inputs", 1e-6);
  expect_near(weights_with({.D = 128, .scheme = {QuantType::kInt8, 32}, .dtype = at::kFloat}), "f32 and int8", 1e-6);
  expect_near(weights_with({.D = 128, .scheme = {QuantType::kInt4, 64}, .dtype = at::kFloat}), "f32 and int4", 1e-6);
  expect_near(weights_with({.D = 128, .F = 96, .shared = 1, .biases = true, .fp8 = true}), "8-bit floats");
  expect_near(weights_with({.D = 128, .F = 72, .fp8 = true}), "8-bit floats and bf16");
}

// All tokens choose the same expert, and none chooses another one.
TEST(PromptExperts, UnevenChoices) {
  at::manual_seed(13);
  GpuWeights weights = weights_with({.X = 5, .k = 2});
  weights.layers[0].router.bias_N = at::tensor({0.0f, 50.0f, -50.0f, 0.0f, 0.0f});
  expect_near(weights, "one full and one empty expert");
  weights = weights_with({.X = 5, .k = 1, .dtype = at::kFloat});
  weights.layers[0].router.bias_N = at::tensor({0.0f, 50.0f, -50.0f, 0.0f, 0.0f});
  expect_near(weights, "all tokens of one expert, in f32", 1e-6);
}

// Experts that a library multiplies have the host's groups: the same rows, so the same bits.
TEST(PromptExperts, OtherFormatsAndSizesAreMultipliedByTheirCounts) {
  at::manual_seed(14);
  GpuWeights several = weights_with({.shared = 1});
  several.layers[0].experts[3].down_proj =
      weights_with({.scheme = {QuantType::kInt8, 32}}).layers[0].experts[3].down_proj;
  for (GpuWeights weights : {several, weights_with({.D = 100, .F = 36, .shared = 2}),
                             weights_with({.D = 100,
                                           .k = 1,
                                           .shared = 1,
                                           .router = {.scores = Scores::kSigmoid, .weighs_inputs = true},
                                           .normed = false})}) {
    const PromptExperts experts(weights);
    const GpuLayer& layer = weights.layers[0];
    EXPECT_FALSE(experts.has(layer));
    const auto one = [&](const GpuExpert& expert, const at::Tensor& rows_RD) {
      return plain_expert(layer, expert, rows_RD);
    };
    weights.layers[0].router.bias_N = at::tensor({0.0f, 0.0f, -50.0f, 0.0f, 0.0f, 0.0f});  // an expert without rows
    for (const std::int64_t T : {1, 290}) {
      const at::Tensor normed_TD = at::randn({T, weights.config.hidden_size}).to(at::kBFloat16);
      EXPECT_TRUE(at::equal(experts.run(layer, normed_TD, normed_TD, one, Queue{}),
                            run_experts(layer, normed_TD, normed_TD, one, Queue{})));
    }
  }
}

ExpertWidths widths_of(std::int64_t hidden, std::int64_t X, std::int64_t k, std::int64_t F) {
  return {.hidden = hidden, .experts = X, .per_token = k, .up = 2 * F, .mlp = F};
}

// The table of decision 061: by one launch in bf16, in 8-bit floats.
TEST(PromptExperts, TheCalculatedTimeChoosesTheWay) {
  struct Model {
    const char* name;
    ExpertWidths widths;
    bool bf16, fp8;
  };
  const std::vector<Model> models = {{"Qwen3-30B-A3B", widths_of(2048, 128, 8, 768), true, true},
                                     {"OLMoE", widths_of(2048, 64, 8, 1024), true, true},
                                     {"DeepSeek-V3 over 8 shards", widths_of(7168, 256, 8, 256), true, true},
                                     {"gpt-oss-20b", widths_of(2880, 32, 4, 2880), true, false},
                                     {"gpt-oss-120b", widths_of(2880, 128, 4, 2880), true, false},
                                     {"PhiMoE", widths_of(4096, 16, 2, 6400), true, false},
                                     {"Llama 4 Scout", widths_of(5120, 16, 1, 8192), true, false},
                                     {"Mixtral 8x7B", widths_of(4096, 8, 2, 14336), false, false},
                                     {"Mixtral 8x7B over 4 shards", widths_of(4096, 8, 2, 3584), true, false},
                                     {"Mixtral 8x22B", widths_of(6144, 8, 2, 16384), false, false},
                                     {"Mixtral 8x22B over 8 shards", widths_of(6144, 8, 2, 2048), true, false}};
  for (const Model& model : models) {
    std::printf("%s, ms by one launch and by a library:", model.name);
    for (const auto type : {at::kBFloat16, at::kFloat8_e4m3fn, at::kFloat}) {
      for (const std::int64_t T : {2048, 8192}) {
        const PromptTimes times = prompt_times(model.widths, type, T);
        std::printf(" %.2f %.2f", 1e3 * times.one_launch, 1e3 * times.by_library);
      }
      std::printf(type == at::kFloat ? "\n" : ",");
    }
    EXPECT_EQ(groups_prompts(model.widths, at::kBFloat16), model.bf16) << model.name;
    EXPECT_EQ(groups_prompts(model.widths, at::kFloat8_e4m3fn), model.fp8) << model.name;
    EXPECT_TRUE(groups_prompts(model.widths, at::kFloat)) << model.name;
    const PromptTimes in_f32 = prompt_times(model.widths, at::kFloat, 8192);
    EXPECT_LT(in_f32.one_launch, 1.12 * in_f32.by_library) << model.name;
  }
  EXPECT_FALSE(groups_prompts(widths_of(2048, 128, 8, 764), at::kBFloat16))
      << "rows that are not multiples of 16 bytes";
  EXPECT_FALSE(groups_prompts({}, at::kBFloat16));
}

// Plans count the columns of all routes only where one launch computes them, and slices of 8-bit floats only there.
TEST(PromptExperts, PlansFollowTheWay) {
  ModelConfig config = weights_with({.D = 2880, .F = 8, .X = 32, .k = 4}).config;
  config.moe_intermediate_size = 2880;
  const auto plan = [&](at::ScalarType factors) {
    const Partition whole = partition_for(config, 0, 1);
    std::uint64_t plain = 0;
    for (const auto& [name, bytes] : gpu_pass_parts(config, whole, 1, {8192, 0, 0, 0}, false, factors))
      if (name == "a plain product") plain = bytes;
    return std::pair(gpu_activation_bytes(config, whole, 8192, 0, factors), plain);
  };
  EXPECT_GE(plan(at::kBFloat16).first - plan(at::kFloat8_e4m3fn).first, 8192u * 4 * 2880 * 2) << "columns";
  EXPECT_EQ(plan(at::kFloat8_e4m3fn).second, 0u);
  config.moe_intermediate_size = 64;
  EXPECT_EQ(plan(at::kBFloat16).second, 0u);
  EXPECT_EQ(plan(at::kFloat8_e4m3fn).second, 32u * 2 * 64 * 2880 * 2) << "gate and up of all experts, in bf16";
  EXPECT_EQ(plan(at::kBFloat16).first, plan(at::kFloat8_e4m3fn).first);
}

// Codes are converted a few experts at a time; two of seven are left for the last slice.
TEST(PromptExperts, CodesHaveTheBitsOfTheirNumbers) {
  at::manual_seed(15);
  for (const Experts& of : {Experts{.D = 128, .X = 7, .shared = 1, .scheme = {QuantType::kInt8, 32}},
                            Experts{.D = 128, .F = 64, .X = 7, .scheme = {QuantType::kInt4, 64}},
                            Experts{.D = 128, .F = 96, .X = 7, .biases = true, .swiglu_limit = 7, .mxfp4 = true},
                            Experts{.D = 128, .X = 7, .scheme = {QuantType::kInt4, 32}, .dtype = at::kFloat},
                            Experts{.D = 128, .F = 96, .X = 7, .fp8 = true}}) {
    GpuWeights weights = weights_with(of);
    for (GpuExpert& expert : weights.layers[0].experts) {
      for (GpuLinear* linear : {&expert.gate_up_proj, &expert.down_proj})
        if (of.fp8) linear->fp8_scales_1N = at::exp2(at::log2(linear->fp8_scales_1N).round());  // then bf16 is exact
    }
    GpuWeights plain = weights;
    for (GpuExpert& expert : plain.layers[0].experts) {
      for (GpuLinear* linear : {&expert.gate_up_proj, &expert.down_proj}) {
        linear->weight_NK = plain_weight(*linear, of.dtype, Queue{});
        for (at::Tensor* codes : {&linear->codes_NB, &linear->scales_NG, &linear->fp8_NK, &linear->fp8_scales_1N})
          codes->reset();
        linear->scheme = {};
      }
    }
    const PromptExperts all(weights), some(weights, 5 * 2 * of.F * of.D), wanted(plain);
    ASSERT_TRUE(all.has(weights.layers[0]) && wanted.has(plain.layers[0]));
    const at::Tensor normed_TD = at::randn({37, of.D}).to(of.dtype);
    const auto run = [&](const PromptExperts& experts, const GpuWeights& own) {
      return experts.run(
          own.layers[0], normed_TD, normed_TD,
          [&](const GpuExpert& expert, const at::Tensor& rows_RD) {
            return plain_expert(plain.layers[0], plain.layers[0].experts.back(), rows_RD);
          },
          Queue{});
    };
    EXPECT_TRUE(at::equal(run(all, weights), run(wanted, plain)));
    EXPECT_TRUE(at::equal(run(some, weights), run(wanted, plain)));
  }
}

}  // namespace gpu_prompt_experts_test
}  // namespace magister::gpu
