// Quantised weights: codes and scales against the rule written out in double, products against plain_weight() in
// double, a row's bits with any other rows, slices over shards that equal the unsharded weight, exact bytes, bad input.
#include "magister/model/cpu/quantize.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "magister/core/error.h"
#include "magister/model/cpu/cpu_kernels.h"
#include "magister/model/cpu/matmul.h"
#include "magister/parallel/thread_pool.h"

namespace magister {
namespace quantize_test {

using Shape = std::tuple<std::int64_t, std::int64_t, std::int64_t>;  // rows, outputs, inputs

at::Tensor product(const at::Tensor& x_MK, const Linear& linear) {
  at::Tensor out_MN =
      at::full({x_MK.size(0), linear.out_features()}, std::numeric_limits<double>::quiet_NaN(), at::kFloat);
  linear_tile(x_MK.const_data_ptr<float>(), x_MK.stride(0), x_MK.size(0), linear, out_MN.data_ptr<float>(),
              out_MN.size(1), false);
  return out_MN;
}

class Quantized : public testing::TestWithParam<std::tuple<Shape, QuantType, std::int64_t>> {
 protected:
  void SetUp() override {
    at::manual_seed(7);
    const auto& [shape, type, group] = GetParam();
    const auto& [rows, outputs, inputs] = shape;
    scheme_ = {type, group};
    x_MK_ = at::randn({rows, inputs + 3}).narrow(1, 0, inputs);
    plain_.weight_NK = at::randn({outputs, inputs}) * at::rand({outputs, 1}) * 0.1;
    plain_.weight_NK.narrow(1, 0, inputs / 2).zero_();  // groups of zeros
  }
  QuantScheme scheme_;
  at::Tensor x_MK_;
  Linear plain_;
};

TEST_P(Quantized, ProductEqualsPlainWeightInDouble) {
  const Linear linear = quantize(plain_, scheme_);
  EXPECT_EQ(linear.in_features(), plain_.in_features());
  EXPECT_EQ(linear.out_features(), plain_.out_features());
  const at::Tensor weight_NK = linear.plain_weight();
  const at::Tensor exact_MN = at::mm(x_MK_.to(at::kDouble), weight_NK.to(at::kDouble).t());
  EXPECT_LE((product(x_MK_, linear) - exact_MN).abs().max().item<double>(),
            1e-7 * static_cast<double>(weight_NK.size(1)));
  // As one product over the same weights in f32 panels gives them: unpacking is exact, the sum's order the same.
  EXPECT_TRUE(at::equal(product(x_MK_, linear), product(x_MK_, pack({weight_NK, {}}))));
}

TEST_P(Quantized, IsTheRuleWrittenOut) {
  const at::Tensor got_NK = quantize(plain_, scheme_).plain_weight();
  const std::int64_t K = plain_.in_features(), group = scheme_.group == 0 ? K : scheme_.group;
  for (std::int64_t begin = 0; begin < K; begin += group) {
    const std::int64_t size = std::min(group, K - begin);
    const at::Tensor w = plain_.weight_NK.narrow(1, begin, size), got = got_NK.narrow(1, begin, size);
    const at::Tensor largest_N1 = w.abs().amax(1, true);
    if (scheme_.type == QuantType::kInt8) {
      const at::Tensor scale_N1 = (largest_N1 / 127).to(at::kBFloat16).to(at::kFloat);
      const at::Tensor q = at::where(scale_N1 > 0, w / scale_N1, at::zeros_like(w)).round().clamp(-127, 127);
      // Ties of the division may fall to either side: one code in thousands.
      EXPECT_LE((got != q * scale_N1).sum().item<std::int64_t>(), 1 + w.numel() / 2000);
    } else {  // no worse than the plain rule absmax / 7
      const at::Tensor scale_N1 = (largest_N1 / 7).to(at::kBFloat16).to(at::kFloat);
      const at::Tensor plain = at::where(scale_N1 > 0, w / scale_N1, at::zeros_like(w)).round().clamp(-8, 7) * scale_N1;
      EXPECT_LE((got - w).pow(2).sum().item<double>(), (plain - w).pow(2).sum().item<double>() * 1.0001);
    }
  }
}

TEST_P(Quantized, ThreadsMakeTheSameCodes) {
  const IndexRange all{0, static_cast<std::uint64_t>(plain_.in_features())};
  const Linear alone = quantize(plain_, scheme_);
  for (const int threads : {2, 5}) {
    ThreadPool pool(threads);
    const Linear shared = quantize(plain_, scheme_, all, all, &pool);
    EXPECT_TRUE(at::equal(shared.panels_PKW, alone.panels_PKW));
    EXPECT_TRUE(at::equal(shared.scales_PGW, alone.scales_PGW));
  }
}

TEST_P(Quantized, ARowsBitsAreItsOwn) {
  const Linear linear = quantize(plain_, scheme_);
  const at::Tensor all_MN = product(x_MK_, linear);
  for (std::int64_t rows = 1; rows <= std::min<std::int64_t>(9, x_MK_.size(0)); ++rows) {
    const std::int64_t begin = x_MK_.size(0) - rows;
    ASSERT_TRUE(at::equal(product(x_MK_.narrow(0, begin, rows), linear), all_MN.narrow(0, begin, rows)))
        << rows << " rows";
  }
  at::Tensor residual_MN = at::randn_like(all_MN);
  const at::Tensor want_MN = residual_MN + all_MN;
  linear_tile(x_MK_.const_data_ptr<float>(), x_MK_.stride(0), x_MK_.size(0), linear, residual_MN.data_ptr<float>(),
              residual_MN.size(1), true);
  EXPECT_TRUE(at::equal(residual_MN, want_MN));
}

TEST_P(Quantized, ShardsAreSlicesOfTheWhole) {
  const Linear whole = quantize(plain_, scheme_);
  const at::Tensor weight_NK = whole.plain_weight();
  const auto K = static_cast<std::uint64_t>(plain_.in_features());
  for (const std::uint64_t shards : {2, 3, 4, 7}) {
    for (std::uint64_t shard = 0; shard < shards; ++shard) {
      const IndexRange columns{K * shard / shards, K * (shard + 1) / shards};
      if (columns.size() == 0) continue;
      const auto begin = static_cast<std::int64_t>(columns.begin), size = static_cast<std::int64_t>(columns.size());
      const IndexRange covering = scheme_.covering(columns, K);
      const Linear read{plain_.weight_NK.narrow(1, static_cast<std::int64_t>(covering.begin),
                                                static_cast<std::int64_t>(covering.size())),
                        {}};
      const Linear part = quantize(read, scheme_, columns, covering);
      ASSERT_TRUE(at::equal(part.plain_weight(), weight_NK.narrow(1, begin, size))) << shard << " of " << shards;
      ASSERT_EQ(part.panels_PKW.nbytes() + part.scales_PGW.nbytes(), scheme_.bytes(part.out_features(), columns));
      const at::Tensor x = x_MK_.narrow(1, begin, size);
      ASSERT_TRUE(at::equal(product(x, part), product(x, pack({weight_NK.narrow(1, begin, size).contiguous(), {}}))));
    }
  }
  for (std::int64_t begin = 0; begin < whole.out_features(); begin += Linear::kPanel) {
    const std::int64_t end = std::min(begin + 2 * Linear::kPanel, whole.out_features());
    ASSERT_TRUE(
        at::equal(product(x_MK_, whole.outputs(begin, end)), product(x_MK_, whole).narrow(1, begin, end - begin)));
  }
  at::Tensor row_K = at::empty({whole.in_features()});
  whole.copy_row(whole.out_features() - 1, row_K.data_ptr<float>());
  EXPECT_TRUE(at::equal(row_K, weight_NK[whole.out_features() - 1]));
}

INSTANTIATE_TEST_SUITE_P(Shapes, Quantized,
                         testing::Combine(testing::Values(Shape{1, 1, 1}, Shape{3, 50, 7}, Shape{9, 97, 193},
                                                          Shape{20, 131, 577}, Shape{257, 144, 400}),
                                          testing::Values(QuantType::kInt8, QuantType::kInt4),
                                          testing::Values(0, 32, 128)));

TEST(QuantizedKernels, Avx2AndAvx512WidenAlike) {
  const CpuKernels* wide = cpu_kernels_avx512();
  if (wide == nullptr) GTEST_SKIP() << "this CPU has no AVX-512 to compare with AVX2";
  at::manual_seed(8);
  const std::int64_t k = 211, lead = 13;
  const at::Tensor words = at::randint(-2147483648LL, 2147483647LL, {(lead + k + 3) / 4, 48}, at::kInt);
  const at::Tensor scales = (at::randn({8, 48}) * at::randn({8, 48}).exp()).to(at::kBFloat16);
  const QuantizedPanel panel{reinterpret_cast<const std::uint32_t*>(words.const_data_ptr<std::int32_t>()),
                             static_cast<const std::uint16_t*>(scales.const_data_ptr()), 32, lead};
  for (int format = 0; format < 2; ++format) {
    at::Tensor widened[2] = {at::zeros({k, 48}), at::zeros({k, 48})};
    int which = 0;
    for (const CpuKernels* kernels : {&cpu_kernels_avx2(), wide})
      kernels->widen_quantized[format](panel, 0, k, widened[which++].data_ptr<float>());
    ASSERT_TRUE(at::equal(widened[0], widened[1])) << format;
    // Every code at every place of a word: q * scale, to the bit.
    for (std::int64_t row = 0; row < k; ++row) {
      const std::int64_t per = format == 0 ? 4 : 8, place = lead % 8 + row, bits = 32 / per;
      const auto word = words[place / per].to(at::kLong).bitwise_and(0xFFFFFFFFLL);
      const auto code = word.bitwise_right_shift(place % per * bits).bitwise_and((1 << bits) - 1) - (1 << (bits - 1));
      const auto want = code.to(at::kFloat) * scales[(lead + row) / 32].to(at::kFloat);
      ASSERT_TRUE(at::equal(widened[0][row], want)) << format << " " << row;
    }
  }
}

TEST(QuantizedKernels, WeightsThatAreNoNumbersAreRefused) {
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(), 1e31}) {
    Linear plain{at::ones({3, 40}), {}};
    plain.weight_NK[1][37] = bad;
    EXPECT_THROW(quantize(plain, {QuantType::kInt8, 32}), Error);
    EXPECT_THROW(quantize(plain, {QuantType::kInt4, 0}), Error);
  }
  EXPECT_THROW(quant_scheme("int5", 32), Error);
  EXPECT_THROW(quant_scheme("int8", 48), Error);
  EXPECT_FALSE(quant_scheme("none", 0).on());
}

}  // namespace quantize_test
}  // namespace magister
