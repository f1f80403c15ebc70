// Decode products and dequantisation on the host, thread by thread, against ATen in double; a row's bits are the same
// alone and among other rows. The cases: stored_weight.h.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <bit>

#include "magister/core/error.h"
#include "model/gpu/product.h"
#include "model/gpu/ring_product_kernel.h"
#include "model/gpu/wide_product_kernel.h"
#include "model/stored_weight.h"

namespace magister::gpu {
namespace gpu_product_test {

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

// More rows than the product of few rows takes, in blocks whose second has one whole tile and one row: the same bits,
// f32 and rounded.
TEST_P(Products, OfManyRowsHaveTheBitsOfFew) {
  const Case& c = GetParam();
  const Stored s = stored_weight(c);
  const at::Tensor x = at::randn({73, c.K}).to(at::kBFloat16), bias = at::randn({c.N});
  const at::Tensor all = product(s, c, x, bias);
  for (const auto& [first, rows] : {std::pair{0, 16}, {57, 16}}) {
    EXPECT_TRUE(at::equal(all.narrow(0, first, rows), product(s, c, x.narrow(0, first, rows).clone(), bias)))
        << "rows " << first << " to " << first + rows;
  }
  EXPECT_TRUE(at::equal(product(s, c, x, bias, false), all.to(at::kBFloat16)));
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

// Blocks of 128 rows, chosen where there are enough of them; and from 33 rows on with many outputs.
TEST(Product, WideBlocksOfManyRowsGiveTheSameBits) {
  at::manual_seed(9);
  const Case c{16, 0, 130, 584};
  const Stored s = stored_weight(c);
  const at::Tensor x = at::randn({150, c.K}).to(at::kBFloat16), wanted = product(s, c, x, {});
  at::Tensor out = at::full({150, c.N}, NAN);
  ProductArguments a{s.weight, static_cast<const Bf16*>(x.data_ptr()), c.K, nullptr, out.data_ptr(), c.N, 150, true};
  start(WideProduct<16, 1, Offset::kMiddle, 8>{a}, Queue{});
  EXPECT_TRUE(at::equal(out, wanted));
  out.fill_(NAN);
  a.M = 41;
  start(WideProduct<16, 1, Offset::kMiddle, 4>{a}, Queue{});
  EXPECT_TRUE(at::equal(out.narrow(0, 0, 41), wanted.narrow(0, 0, 41)));
  EXPECT_TRUE(out.narrow(0, 41, 109).isnan().all().item<bool>());
}

// The product whose words travel through shared memory against the one by registers, for weights of a few outputs with
// eight and with sixteen chains.
template <int kBits, int kParts>
void expect_bits_of_registers(int group) {
  for (const int steps : {5, 33, 65}) {
    const Case c{kBits, group, 37, steps * 512 / kBits - 32};
    SCOPED_TRACE(std::to_string(kBits) + " bits, groups of " + std::to_string(group) + ", " + std::to_string(c.K));
    Stored s = stored_weight(c);
    s.weight.group_shift = group == 0 ? 30 : std::countr_zero(static_cast<unsigned>(group));
    const at::Tensor x = at::randn({8, c.K}).to(at::kBFloat16), bias = at::randn({c.N});
    for (const int M : {1, 8}) {
      at::Tensor wanted = at::full({M, c.N}, NAN), by_ring = wanted.clone(), by_wide_ring = wanted.clone();
      ProductArguments a{s.weight, static_cast<const Bf16*>(x.data_ptr()), c.K, bias.data_ptr<float>(), nullptr, c.N, M,
                         true};
      const auto run = [&](auto kernel, at::Tensor& out) {
        kernel.a = a;
        kernel.a.out_MN = out.data_ptr();
        start(kernel, Queue{});
      };
      run(DecodeProduct<kBits, kParts, Offset::kMiddle, 1, 1>{}, wanted);
      run(RingProduct<kBits, kParts, 1>{}, by_ring);
      run(RingProduct<kBits, kParts, 2>{}, by_wide_ring);
      EXPECT_TRUE(at::equal(by_ring, wanted)) << M << " rows";
      EXPECT_TRUE(at::equal(by_wide_ring, wanted)) << M << " rows, blocks of 32 outputs";
    }
  }
}
TEST(RingProduct, HasTheBitsOfTheProductByRegisters) {
  at::manual_seed(5);
  for (const HostOrder order : {HostOrder::kAscending, HostOrder::kDescending}) {
    set_host_order(order);
    expect_bits_of_registers<16, 1>(0);
    expect_bits_of_registers<8, 1>(64);
    expect_bits_of_registers<8, 2>(32);
    expect_bits_of_registers<4, 1>(128);
    expect_bits_of_registers<4, 2>(64);
    expect_bits_of_registers<4, 4>(32);
  }
  set_host_order(HostOrder::kAscending);
}

// Scales that are too many for shared memory, or begin anywhere, are left to the product by registers.
TEST(RingProduct, TakesWhatFits) {
  RingProduct<8, 2, 1> kernel{};
  kernel.a.weight.N = 4096, kernel.a.weight.K = 4096, kernel.a.weight.G = 128;
  EXPECT_TRUE(kernel.takes(std::size_t{227} << 10));
  EXPECT_FALSE(kernel.takes(std::size_t{99} << 10)) << "sixteen warps";
  kernel.a.weight.N = 4240;
  EXPECT_TRUE(kernel.takes(std::size_t{99} << 10)) << "eight warps";
  kernel.a.weight.scales = reinterpret_cast<const std::uint16_t*>(std::uintptr_t{1032});
  EXPECT_FALSE(kernel.takes(std::size_t{227} << 10));
}

// Other rows with infinities and NaN change no bit of a row.
TEST(Product, NeighboursThatAreNoNumbersStayAmongThemselves) {
  const Case c{4, 64, 20, 192};
  const Stored s = stored_weight(c);
  at::Tensor x = at::randn({65, c.K}).to(at::kBFloat16);
  const at::Tensor alone = product(s, c, x.narrow(0, 1, 1).clone(), {});
  x[0].fill_(INFINITY);
  x[2].fill_(NAN);
  for (const int M : {3, 65}) EXPECT_TRUE(at::equal(product(s, c, x.narrow(0, 0, M), {}).narrow(0, 1, 1), alone)) << M;
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

TEST(Product, RefusesMoreGroupsThanItsIndicesReach) {
  alignas(16) std::uint16_t scales[8] = {};
  StoredWeight weight;
  weight.scales = scales;
  weight.N = 1 << 21;
  weight.K = 1 << 15;
  weight.G = 1 << 10;
  EXPECT_THROW(dequantize(weight, 8, 32, scales, false, Queue{}), Error);
}

}  // namespace gpu_product_test
}  // namespace magister::gpu
