// Packed products against ATen in fp64, and their promise: bits that depend on the row and the weights alone.
#include "magister/model/matmul.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "magister/model/cpu_kernels.h"

namespace magister {
namespace {

struct Shape {
  std::int64_t rows, outputs, inputs;
};
void PrintTo(const Shape& s, std::ostream* out) { *out << s.rows << "x" << s.outputs << "x" << s.inputs; }

at::Tensor product(const at::Tensor& x_MK, const Linear& linear) {
  at::Tensor out_MN = at::full({x_MK.size(0), linear.out_features()}, std::numeric_limits<double>::quiet_NaN(), at::kFloat);
  linear_tile(x_MK.const_data_ptr<float>(), x_MK.stride(0), x_MK.size(0), linear, out_MN.data_ptr<float>(), out_MN.size(1),
              false);
  return out_MN;
}

class Products : public testing::TestWithParam<std::tuple<Shape, at::ScalarType>> {
 protected:
  void SetUp() override {
    at::manual_seed(5);
    const auto& [shape, dtype] = GetParam();
    x_MK_ = at::randn({shape.rows, shape.inputs + 3}).narrow(1, 0, shape.inputs);  // a stride that is not K
    weight_NK_ = at::randn({shape.outputs, shape.inputs}).to(dtype);
  }
  // Packed even where the CPU would rather use ATen for 16 bit.
  Linear packed() const {
    Linear linear = pack({weight_NK_.to(at::kFloat), {}});
    linear.panels_PKW = linear.panels_PKW.to(weight_NK_.scalar_type());
    return linear;
  }
  at::Tensor x_MK_, weight_NK_;
};

TEST_P(Products, EqualsAtenInDouble) {
  const at::Tensor exact_MN = at::mm(x_MK_.to(at::kDouble), weight_NK_.to(at::kDouble).t());
  const double tolerance = 1e-6 * static_cast<double>(weight_NK_.size(1));
  EXPECT_LE((product(x_MK_, packed()) - exact_MN).abs().max().item<double>(), tolerance);
  EXPECT_TRUE(at::equal(packed().plain_weight(), weight_NK_));
}

TEST_P(Products, ARowsBitsAreItsOwn) {
  const Linear linear = packed();
  const at::Tensor all_MN = product(x_MK_, linear);
  for (std::int64_t r = 0; r < x_MK_.size(0); r += 1 + r / 3) {
    ASSERT_TRUE(at::equal(product(x_MK_.narrow(0, r, 1), linear)[0], all_MN[r])) << "row " << r;
  }
}

TEST_P(Products, AddsTheSameBitsAsAPartialProduct) {
  const Linear linear = packed();
  at::Tensor residual_MN = at::randn({x_MK_.size(0), linear.out_features()});
  const at::Tensor want_MN = residual_MN + product(x_MK_, linear);
  linear_tile(x_MK_.const_data_ptr<float>(), x_MK_.stride(0), x_MK_.size(0), linear, residual_MN.data_ptr<float>(),
              residual_MN.size(1), true);
  EXPECT_TRUE(at::equal(residual_MN, want_MN));
}

TEST_P(Products, SlicesAndRowsAreTheWholes) {
  const Linear linear = packed();
  const at::Tensor all_MN = product(x_MK_, linear);
  for (std::int64_t begin = 0; begin < linear.out_features(); begin += Linear::kPanel) {
    const std::int64_t end = std::min(begin + 2 * Linear::kPanel, linear.out_features());
    ASSERT_TRUE(at::equal(product(x_MK_, linear.outputs(begin, end)), all_MN.narrow(1, begin, end - begin)));
  }
  at::Tensor row_K = at::empty({linear.in_features()});
  linear.copy_row(linear.out_features() - 1, row_K.data_ptr<float>());
  EXPECT_TRUE(at::equal(row_K, weight_NK_[linear.out_features() - 1].to(at::kFloat)));
}

INSTANTIATE_TEST_SUITE_P(Shapes, Products,
                         testing::Combine(testing::Values(Shape{1, 1, 1}, Shape{1, 48, 64}, Shape{3, 50, 7}, Shape{8, 97, 193},
                                                          Shape{9, 131, 577}, Shape{257, 144, 400}, Shape{300, 20, 192}),
                                          testing::Values(at::kFloat, at::kBFloat16, at::kHalf)));

TEST(Product, Avx2AndAvx512GiveTheSameBits) {
  const CpuKernels* wide = cpu_kernels_avx512();
  if (wide == nullptr) GTEST_SKIP() << "this CPU has no AVX-512 to compare with AVX2";
  at::manual_seed(6);
  const std::int64_t rows = 29, k = 211;
  const at::Tensor x = at::randn({rows, k}), weights = at::randn({k * Linear::kPanel + 16});
  for (int format = 0; format < kNumWeightFormats; ++format) {
    const at::Tensor stored = weights.to(format == 0 ? at::kFloat : format == 1 ? at::kBFloat16 : at::kHalf);
    for (const std::int64_t columns : {1, 7, 16, 31, 33, 48}) {
      at::Tensor out[2] = {at::zeros({rows, columns}), at::zeros({rows, columns})};
      int which = 0;
      for (const CpuKernels* kernels : {&cpu_kernels_avx2(), wide}) {
        kernels->multiply[format]({x.const_data_ptr<float>(), k, rows, stored.const_data_ptr(), Linear::kPanel, k,
                                   out[which++].data_ptr<float>(), columns, columns});
      }
      ASSERT_TRUE(at::equal(out[0], out[1])) << format << " " << columns;
    }
  }
}

}  // namespace
}  // namespace magister
