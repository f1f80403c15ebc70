// Weights on a GPU (its kernels run on the host): codes of the CPU's packed layers keep their numbers, whatever columns a shard holds,
// and products of few and of many rows agree with plain ones.
#include "model/gpu/gpu_linear.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>

#include "magister/model/quantize.h"
#include "model/gpu/product.h"

namespace magister::gpu {
namespace {

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
  const at::Tensor covered = whole_NK.narrow(1, static_cast<std::int64_t>(covering.begin), static_cast<std::int64_t>(covering.size()));
  Linear plain{covered.contiguous(), {}};
  Linear packed = quantize(plain, scheme, columns, covering);
  packed.bias_N = at::randn({70});
  const GpuLinear linear = to_device(packed, at::kCPU);
  const at::Tensor wanted_NK = packed.plain_weight();
  EXPECT_TRUE(at::equal(plain_weight(linear, at::kFloat, Queue{}), wanted_NK));
  EXPECT_TRUE(at::equal(plain_weight(linear, at::kBFloat16, Queue{}), wanted_NK.to(at::kBFloat16)));
  for (const std::int64_t M : {1, 5, 70}) {  // 70: more than the decode products take
    const at::Tensor x_MK = at::randn({M, c.end - c.begin}).to(at::kBFloat16);
    const at::Tensor wanted_MN = at::mm(x_MK.to(at::kDouble), wanted_NK.to(at::kDouble).t()) + packed.bias_N;
    // Few rows multiply by the numbers themselves; many by those rounded to bf16: 2^-9 of each of about 300 terms.
    const double limit = M <= kMostDecodeRows ? 1e-5 : 4e-3;
    const at::Tensor got_MN = product(linear, x_MK, at::kFloat, Queue{}).to(at::kDouble);
    EXPECT_LE((got_MN - wanted_MN).abs().max().item<double>(), limit * wanted_MN.abs().max().item<double>()) << M;
  }
}

INSTANTIATE_TEST_SUITE_P(Shards, Codes,
                         testing::Values(Case{QuantType::kInt8, 32, 0, 352}, Case{QuantType::kInt8, 0, 0, 352},
                                         Case{QuantType::kInt8, 128, 44, 200}, Case{QuantType::kInt4, 32, 0, 352},
                                         Case{QuantType::kInt4, 64, 96, 352}, Case{QuantType::kInt4, 128, 44, 200},
                                         Case{QuantType::kInt4, 128, 45, 200}, Case{QuantType::kInt4, 0, 11, 97}),
                         [](const auto& info) {
                           const Case& c = info.param;
                           return std::string(c.type == QuantType::kInt8 ? "int8" : "int4") + "g" + std::to_string(c.group) + "from" +
                                  std::to_string(c.begin);
                         });

TEST(GpuLinear, PlainWeightsInBothTypes) {
  at::manual_seed(4);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    Linear plain{at::randn({33, 64}).to(type), at::randn({33})};
    const GpuLinear linear = to_device(plain, at::kCPU);
    for (const std::int64_t M : {1, 3, 100}) {
      const at::Tensor x_MK = at::randn({M, 64}).to(type);
      const at::Tensor wanted = at::mm(x_MK.to(at::kDouble), plain.weight_NK.to(at::kDouble).t()) + plain.bias_N;
      const at::Tensor got = product(linear, x_MK, at::kFloat, Queue{}).to(at::kDouble);
      EXPECT_LE((got - wanted).abs().max().item<double>(), 1e-5 * wanted.abs().max().item<double>()) << type << " " << M;
    }
  }
}

}  // namespace
}  // namespace magister::gpu
