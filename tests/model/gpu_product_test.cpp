// Decode products and dequantisation on the host, thread by thread, against ATen in double; and a row's bits alone and in
// company. The cases: stored_weight.h.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "model/gpu/product.h"
#include "model/stored_weight.h"

namespace magister::gpu {
namespace {

using Case = ProductCase;

class Products : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    at::manual_seed(7);
    set_host_order(GetParam().order);
  }
  void TearDown() override { set_host_order(HostOrder::kAscending); }
};

// Sums in f32 of K products: 1e-6 of the sum of their sizes; bf16 results keep 8 bits.
TEST_P(Products, AreThoseOfDoubleArithmeticAndARowsBitsAreItsOwn) {
  const Case& c = GetParam();
  const Stored s = stored_weight(c);
  const at::Tensor x = at::randn({64, c.K}).to(at::kBFloat16), bias = at::randn({c.N});
  const at::Tensor wanted = at::linear(x.to(at::kDouble), s.value_NK, bias.to(at::kDouble));
  const at::Tensor size = at::linear(x.to(at::kDouble).abs(), s.value_NK.abs(), bias.to(at::kDouble).abs());
  const at::Tensor all = product(s, c, x, bias);
  EXPECT_LE(((all.to(at::kDouble) - wanted).abs() / size).max().item<double>(), 1e-6);
  for (const int M : {1, 5, 13, 20}) {
    const at::Tensor some = product(s, c, x.narrow(0, 0, M), bias);
    EXPECT_TRUE(at::equal(some, all.narrow(0, 0, M))) << M << " rows";
  }
  const at::Tensor one = product(s, c, x.narrow(0, 41, 1).clone(), bias, false);  // another place in its tile, bf16 out
  EXPECT_TRUE(at::equal(one[0], all[41].to(at::kBFloat16)));
}

INSTANTIATE_TEST_SUITE_P(All, Products, testing::ValuesIn(product_cases()), product_name);

// Wide blocks of 32 outputs are chosen from 4,224 outputs on: the same bits.
TEST(Product, WideBlocksGiveTheSameBits) {
  const Case c{4, 32, 4256, 64};
  const Stored s = stored_weight(c);
  const at::Tensor x = at::randn({3, c.K}).to(at::kBFloat16);
  const at::Tensor all = product(s, c, x, {});
  EXPECT_TRUE(at::equal(product(s, c, x.narrow(0, 2, 1).clone(), {}), all.narrow(0, 2, 1)));
}

// Rows beside it that hold infinities and NaN change no bit of a row.
TEST(Product, NeighboursThatAreNoNumbersStayAmongThemselves) {
  const Case c{4, 64, 20, 192};
  const Stored s = stored_weight(c);
  at::Tensor x = at::randn({3, c.K}).to(at::kBFloat16);
  const at::Tensor alone = product(s, c, x.narrow(0, 1, 1).clone(), {});
  x[0].fill_(INFINITY);
  x[2].fill_(NAN);
  EXPECT_TRUE(at::equal(product(s, c, x, {}).narrow(0, 1, 1), alone));
}

TEST_P(Products, CodesBecomeTheNumbersTheyStandFor) {
  const Case& c = GetParam();
  if (c.bits == 16) return;  // these have no codes
  const Stored s = stored_weight(c);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    at::Tensor out = at::full({c.N, c.K}, NAN, type);
    dequantize(s.weight, c.bits, c.group, out.data_ptr(), type == at::kFloat, Queue{});
    EXPECT_TRUE(at::equal(out, s.value_NK.to(at::kFloat).to(type))) << c10::toString(type);
  }
}

}  // namespace
}  // namespace magister::gpu
