// Packed products against ATen in fp64, and their promise: bits that depend on the row and the weights alone.
#include "magister/model/cpu/matmul.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <optional>

#include "magister/model/cpu/cpu_kernels.h"
#include "magister/model/cpu/panel_memory.h"
#include "magister/model/cpu/panels.h"
#include "magister/parallel/thread_pool.h"
#include "model/these_kernels.h"

namespace magister {
namespace matmul_test {

struct Shape {
  std::int64_t rows, outputs, inputs;
};
void PrintTo(const Shape& s, std::ostream* out) { *out << s.rows << "x" << s.outputs << "x" << s.inputs; }

at::Tensor product(const at::Tensor& x_MK, const Linear& linear) {
  at::Tensor out_MN =
      at::full({x_MK.size(0), linear.out_features()}, std::numeric_limits<double>::quiet_NaN(), at::kFloat);
  linear_tile(x_MK.const_data_ptr<float>(), x_MK.stride(0), x_MK.size(0), linear, out_MN.data_ptr<float>(),
              out_MN.size(1), false);
  return out_MN;
}

class CpuProducts : public testing::TestWithParam<std::tuple<Shape, at::ScalarType, const CpuKernels*>> {
 protected:
  void SetUp() override {
    at::manual_seed(5);
    const auto& [shape, dtype, kernels] = GetParam();
    these_.emplace(*kernels);
    x_MK_ = at::randn({shape.rows, shape.inputs + 3}).narrow(1, 0, shape.inputs);  // a stride that is not K
    weight_NK_ = at::randn({shape.outputs, shape.inputs}).to(dtype);
  }
  Linear packed() const { return pack({weight_NK_, {}}); }
  // The factors of the products: with bf16 products activations are rounded, too.
  at::Tensor multiplied_MK() const { return packed().pairs ? x_MK_.to(at::kBFloat16).to(at::kFloat) : x_MK_; }
  std::optional<TheseKernels> these_;
  at::Tensor x_MK_, weight_NK_;
};

TEST_P(CpuProducts, EqualsAtenInDouble) {
  const at::Tensor exact_MN = at::mm(multiplied_MK().to(at::kDouble), weight_NK_.to(at::kDouble).t());
  const double tolerance = 1e-6 * static_cast<double>(weight_NK_.size(1));
  EXPECT_LE((product(x_MK_, packed()) - exact_MN).abs().max().item<double>(), tolerance);
  EXPECT_TRUE(at::equal(packed().plain_weight(), weight_NK_));
  EXPECT_EQ(packed().pairs, weight_NK_.scalar_type() == at::kBFloat16 && cpu_kernels().multiply_bf16 != nullptr);
}

// As a file is read: in parts that begin and end anywhere, into memory that held something else.
TEST_P(CpuProducts, RowsInPartsGiveTheSamePanels) {
  const std::int64_t N = weight_NK_.size(0);
  Linear linear = empty_packed(N, weight_NK_.size(1), weight_NK_.scalar_type());
  linear.panels_PKW.fill_(-7);
  clear_padding(linear);
  for (std::int64_t first = 0, part = 1; first < N; part = part * 2 % 101) {
    const std::int64_t rows = std::min(part, N - first);
    pack_rows(weight_NK_.narrow(0, first, rows), first, linear);
    first += rows;
  }
  EXPECT_TRUE(at::equal(linear.plain_weight(), weight_NK_));
  EXPECT_TRUE(at::equal(linear.panels_PKW, packed().panels_PKW)) << "with zeros after the last output";
}

// As one tile after the other, with the outputs over a pool's threads, and with a bias.
TEST_P(CpuProducts, ThreadsAndBiasesChangeNoBit) {
  Linear linear = packed();
  const at::Tensor want_MN = product(x_MK_, linear);
  linear.bias_N = at::randn({linear.out_features()});
  ThreadPool pool(3);
  at::Tensor out_MN = at::empty_like(want_MN);
  linear_tile(x_MK_.const_data_ptr<float>(), x_MK_.stride(0), x_MK_.size(0), linear, out_MN.data_ptr<float>(),
              out_MN.size(1), false, &pool);
  EXPECT_TRUE(at::equal(out_MN, want_MN + linear.bias_N));
}

TEST_P(CpuProducts, ARowsBitsAreItsOwn) {
  const Linear linear = packed();
  const at::Tensor all_MN = product(x_MK_, linear);
  for (std::int64_t r = 0; r < x_MK_.size(0); r += 1 + r / 3) {
    ASSERT_TRUE(at::equal(product(x_MK_.narrow(0, r, 1), linear)[0], all_MN[r])) << "row " << r;
  }
}

TEST_P(CpuProducts, AddsTheSameBitsAsAPartialProduct) {
  const Linear linear = packed();
  at::Tensor residual_MN = at::randn({x_MK_.size(0), linear.out_features()});
  const at::Tensor want_MN = residual_MN + product(x_MK_, linear);
  linear_tile(x_MK_.const_data_ptr<float>(), x_MK_.stride(0), x_MK_.size(0), linear, residual_MN.data_ptr<float>(),
              residual_MN.size(1), true);
  EXPECT_TRUE(at::equal(residual_MN, want_MN));
}

TEST_P(CpuProducts, SlicesAndRowsAreTheWholes) {
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

std::string name_of(const testing::TestParamInfo<CpuProducts::ParamType>& info) {
  const auto& [shape, dtype, kernels] = info.param;
  return fmt::format("{}x{}x{}_{}_{}", shape.rows, shape.outputs, shape.inputs, c10::toString(dtype), kernels->name);
}

INSTANTIATE_TEST_SUITE_P(Shapes, CpuProducts,
                         testing::Combine(testing::Values(Shape{1, 1, 1}, Shape{1, 48, 64}, Shape{3, 50, 7},
                                                          Shape{8, 97, 193}, Shape{9, 131, 577}, Shape{17, 49, 96},
                                                          Shape{33, 200, 3000}, Shape{257, 144, 400},
                                                          Shape{300, 20, 192}),
                                          testing::Values(at::kFloat, at::kBFloat16, at::kHalf),
                                          testing::ValuesIn(cpu_kernels_here())),
                         name_of);

TEST(PanelBlocks, PanelsShareBlocksThatTheLastOfThemFrees) {
  constexpr std::int64_t kHugePage = 2 << 20, kLarge = (40 << 20) / 4;
  const auto address = [](const at::Tensor& panels) { return reinterpret_cast<std::intptr_t>(panels.data_ptr()); };
  at::Tensor first, second, next;
  {
    const PanelBlocks blocks;
    first = empty_panels({3, 5, 48}, at::kFloat).fill_(1);
    second = empty_panels({7, 48}, at::kBFloat16).fill_(2);
    {
      const PanelBlocks inner;
      EXPECT_EQ(address(empty_panels({48}, at::kFloat)) % kHugePage, 0);
    }
    EXPECT_EQ(address(first) % kHugePage, 0);
    EXPECT_EQ(address(second), address(first) + 45 * 64);
    // Two panels of 40 MiB have a block each, and larger ones than a block have one of their size.
    next = empty_panels({kLarge}, at::kFloat).fill_(3);
    EXPECT_EQ(address(next), address(second) + 11 * 64);
    EXPECT_EQ(address(empty_panels({kLarge}, at::kFloat)) % kHugePage, 0);
    EXPECT_EQ(address(empty_panels({2 * kLarge}, at::kFloat)) % kHugePage, 0);
    EXPECT_EQ(empty_panels({0, 48}, at::kFloat).numel(), 0);
  }
  first = at::Tensor();
  EXPECT_NE(address(empty_panels({48}, at::kFloat)) % kHugePage, 0) << "memory of its own after the blocks";
  EXPECT_TRUE((second.to(at::kFloat) == 2).all().item<bool>());
  EXPECT_TRUE((next == 3).all().item<bool>());
}

// Few rows of a panel from memory, which AVX2 multiplies in parts: the bits of a panel that stays in cache.
TEST(CpuProduct, PanelsFromMemoryGiveTheSameBits) {
  at::manual_seed(7);
  const std::int64_t k = 211;
  const at::Tensor x = at::randn({8, k}), weights = at::randn({k, Linear::kPanel});
  for (const CpuKernels* kernels : cpu_kernels_here()) {
    for (int format = 0; format < kNumWeightFormats; ++format) {
      const at::Tensor stored = weights.to(format == 0 ? at::kFloat : format == 1 ? at::kBFloat16 : at::kHalf);
      for (std::int64_t rows = 1; rows <= 8; ++rows) {
        SCOPED_TRACE(fmt::format("{} format {} rows {}", kernels->name, format, rows));
        const at::Tensor begun = at::randn({rows, Linear::kPanel}), residual = at::randn({rows, Linear::kPanel});
        at::Tensor out = begun.clone(), streamed = begun.clone(), added = residual.clone();
        Product product{x.const_data_ptr<float>(), k, rows, stored.const_data_ptr(), Linear::kPanel, k};
        product.c = out.data_ptr<float>();
        product.c_stride = product.columns = Linear::kPanel;
        product.accumulate = rows % 2 == 0;
        kernels->multiply[format](product);
        product.streams = true;
        product.c = streamed.data_ptr<float>();
        kernels->multiply[format](product);
        EXPECT_TRUE(at::equal(streamed, out));
        at::Tensor scratch = begun.clone();
        product.c = scratch.data_ptr<float>();
        product.add_to = added.data_ptr<float>();
        product.add_stride = Linear::kPanel;
        kernels->multiply[format](product);
        EXPECT_TRUE(at::equal(added, residual + out));
      }
    }
  }
}

TEST(CpuProduct, Avx2AndAvx512GiveTheSameBits) {
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

}  // namespace matmul_test
}  // namespace magister
