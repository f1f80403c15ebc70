// Weights on a GPU (its kernels run on the host): codes of the CPU's packed layers keep their numbers for all columns
// of a shard, and products of few and of many rows agree with plain ones.
#include "model/gpu/gpu_linear.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>

#include "magister/model/cpu/quantize.h"
#include "model/gpu/product.h"

namespace magister::gpu {
namespace gpu_linear_test {

struct Case {
  QuantType type;
  std::int64_t group, begin, end;  // columns of the whole tensor's 352 that this shard holds
};

class Codes : public testing::TestWithParam<Case> {};

TEST_P(Codes, KeepTheirNumbersAndMultiply) {
  const Case c = GetParam();
  at::manual_seed(3);
  const at::Tensor whole_NK = at::randn({70, 352}) * 0.05;
  const QuantScheme scheme{c.type, c.group};
  const IndexRange columns{static_cast<std::uint64_t>(c.begin), static_cast<std::uint64_t>(c.end)};
  const IndexRange covering = scheme.covering(columns, 352);
  const at::Tensor covered =
      whole_NK.narrow(1, static_cast<std::int64_t>(covering.begin), static_cast<std::int64_t>(covering.size()));
  Linear plain{covered.contiguous(), {}};
  Linear packed = quantize(plain, scheme, columns, covering);
  packed.bias_N = at::randn({70});
  const GpuLinear linear = to_device(packed, at::kCPU);
  const at::Tensor wanted_NK = packed.plain_weight();
  EXPECT_TRUE(at::equal(plain_weight(linear, at::kFloat, Queue{}), wanted_NK));
  EXPECT_TRUE(at::equal(plain_weight(linear, at::kBFloat16, Queue{}), wanted_NK.to(at::kBFloat16)));
  for (const std::int64_t M : {1, 5, 70}) {  // 70: more than a decode product takes at once
    const at::Tensor x_MK = at::randn({M, c.end - c.begin}).to(at::kBFloat16);
    const at::Tensor wanted_MN = at::mm(x_MK.to(at::kDouble), wanted_NK.to(at::kDouble).t()) + packed.bias_N;
    // These multiply by the numbers themselves, tiles by those rounded to bf16: 2^-9 of each of about 300 terms.
    const at::Tensor got_MN = product(linear, x_MK, at::kFloat, Queue{}).to(at::kDouble);
    EXPECT_LE((got_MN - wanted_MN).abs().max().item<double>(), 1e-5 * wanted_MN.abs().max().item<double>()) << M;
    const at::Tensor tiled_MN = product_of_tile(linear, x_MK, at::kFloat, Queue{}).to(at::kDouble);
    EXPECT_LE((tiled_MN - wanted_MN).abs().max().item<double>(), 4e-3 * wanted_MN.abs().max().item<double>()) << M;
  }
}

INSTANTIATE_TEST_SUITE_P(Shards, Codes,
                         testing::Values(Case{QuantType::kInt8, 32, 0, 352}, Case{QuantType::kInt8, 0, 0, 352},
                                         Case{QuantType::kInt8, 128, 44, 200}, Case{QuantType::kInt4, 32, 0, 352},
                                         Case{QuantType::kInt4, 64, 96, 352}, Case{QuantType::kInt4, 128, 44, 200},
                                         Case{QuantType::kInt4, 128, 45, 200}, Case{QuantType::kInt4, 0, 11, 97}),
                         [](const auto& info) {
                           const Case& c = info.param;
                           return std::string(c.type == QuantType::kInt8 ? "int8" : "int4") + "g" +
                                  std::to_string(c.group) + "from" + std::to_string(c.begin);
                         });

GpuLinear linear_of(const std::string& kind, std::int64_t N, std::int64_t K) {
  const at::Tensor weight_NK = at::randn({N, K}) * 0.05, bias_N = at::randn({N});
  const IndexRange all{0, static_cast<std::uint64_t>(K)};
  if (kind == "f32") return to_device(Linear{weight_NK, bias_N}, at::kCPU);
  if (kind == "int4") return to_device(quantize(Linear{weight_NK, bias_N}, {QuantType::kInt4, 32}, all, all), at::kCPU);
  GpuLinear linear = to_device(Linear{weight_NK.to(at::kBFloat16), bias_N}, at::kCPU);
  if (kind == "fp8") to_fp8(linear, Queue{});
  return linear;
}

// However rows are cut into passes, each has the bits that it has in all others.
class Tiles : public testing::TestWithParam<std::string> {};

TEST_P(Tiles, RowsHaveTheirOwnBits) {
  at::manual_seed(5);
  GpuLinear linear = linear_of(GetParam(), 96, 160);
  const at::ScalarType type = GetParam() == "f32" ? at::kFloat : at::kBFloat16;
  find_tile_sizes(linear, type, Queue{});
  const at::Tensor x_MK = at::randn({2603, 160}).to(type);
  const at::Tensor wanted =
      at::mm(x_MK.to(at::kDouble), plain_weight(linear, at::kFloat, Queue{}).to(at::kDouble).t()) + linear.bias_N;
  for (const TileSizes& sizes : {linear.prompt_tiles, linear.pass_tiles}) {
    ASSERT_TRUE(std::is_sorted(sizes.rbegin(), sizes.rend()));
    const at::Tensor whole = product_in_tiles(linear, x_MK, sizes, Queue{});
    const double limit = GetParam() == "f32" ? 1e-5 : GetParam() == "fp8" ? 0.06 : 8e-3;
    EXPECT_LE((whole.to(at::kDouble) - wanted).abs().max().item<double>(), limit * wanted.abs().max().item<double>());
    for (const auto& [first, rows] : {std::pair{0, 1}, {3, 64}, {700, 257}, {1, 2048}, {1300, 1303}, {5, 2590}}) {
      EXPECT_TRUE(at::equal(product_in_tiles(linear, x_MK.narrow(0, first, rows), sizes, Queue{}),
                            whole.narrow(0, first, rows)))
          << rows << " rows from " << first << " on in tiles of " << sizes.front() << " to " << sizes.back();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Tiles, testing::Values("f32", "bf16", "int4", "fp8"),
                         [](const auto& info) { return info.param; });

TEST(AgreeingSizes, AreThoseWithTheBitsOfTheWanted) {
  const at::Tensor one = at::ones({2, 3}), other = one + 1e-7;
  ASSERT_FALSE(at::equal(one, other));
  EXPECT_EQ(agreeing_sizes({{4096, one}, {2048, one}, {1024, {}}, {512, other}, {256, other}}, 2048),
            (TileSizes{4096, 2048}));
  EXPECT_EQ(agreeing_sizes({{4096, one}, {2048, one}, {1024, {}}, {512, other}, {256, other}}, 256),
            (TileSizes{512, 256}));
  EXPECT_EQ(agreeing_sizes({{4096, one}, {2048, other}, {256, one}}, 256), (TileSizes{4096, 256}));
  EXPECT_EQ(agreeing_sizes({{4096, one}, {2048, {}}, {256, {}}}, 256), (TileSizes{4096}))
      << "the wanted size has no bits of its own, another has";
  EXPECT_EQ(agreeing_sizes({{4096, one}, {2048, other}, {256, {}}}, 256), (TileSizes{2048}));
  EXPECT_EQ(agreeing_sizes({{4096, {}}, {2048, {}}, {256, one}}, 2048), (TileSizes{256}));
  EXPECT_EQ(agreeing_sizes({{4096, {}}, {2048, {}}, {256, {}}}, 256), (TileSizes{256}))
      << "its rows' places matter: no other agrees";
}

// Tiles of several sizes that agree: the widest that fit, and a filled one at the end.
TEST(GpuLinear, TilesOfAnySizesMultiplyAll) {
  at::manual_seed(7);
  const GpuLinear linear = linear_of("f32", 40, 24);
  const at::Tensor x_MK = at::randn({1000, 24});
  const at::Tensor wanted = at::mm(x_MK, linear.weight_NK.t()) + linear.bias_N;
  for (const TileSizes& sizes :
       {TileSizes{512, 256}, TileSizes{300}, TileSizes{1000}, TileSizes{4096}, TileSizes{999, 7}}) {
    EXPECT_TRUE(at::allclose(product_in_tiles(linear, x_MK, sizes, Queue{}), wanted, 1e-5, 1e-6)) << sizes.front();
  }
}

TEST(GpuLinear, FewRowsDoNotDependOnEachOther) {
  at::manual_seed(6);
  for (const std::string kind : {"f32", "bf16", "int4"}) {
    const GpuLinear linear = linear_of(kind, 96, 160);
    const at::Tensor x_MK = at::randn({150, 160}).to(kind == "f32" ? at::kFloat : at::kBFloat16);
    const at::Tensor all = product(linear, x_MK, at::kFloat, Queue{});
    for (const auto& [first, rows] : {std::pair{0, 1}, {149, 1}, {60, 9}, {20, 100}}) {
      const at::Tensor some = product(linear, x_MK.narrow(0, first, rows), at::kFloat, Queue{});
      EXPECT_TRUE(at::equal(some, all.narrow(0, first, rows))) << kind << ", from row " << first << " on";
    }
  }
}

TEST(GpuLinear, PlainWeightsInBothTypes) {
  at::manual_seed(4);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    Linear plain{at::randn({33, 64}).to(type), at::randn({33})};
    const GpuLinear linear = to_device(plain, at::kCPU);
    for (const std::int64_t M : {1, 3, 100}) {
      const at::Tensor x_MK = at::randn({M, 64}).to(type);
      const at::Tensor wanted = at::mm(x_MK.to(at::kDouble), plain.weight_NK.to(at::kDouble).t()) + plain.bias_N;
      const at::Tensor got = product(linear, x_MK, at::kFloat, Queue{}).to(at::kDouble);
      EXPECT_LE((got - wanted).abs().max().item<double>(), 1e-5 * wanted.abs().max().item<double>())
          << type << " " << M;
    }
  }
}

}  // namespace gpu_linear_test
}  // namespace magister::gpu
