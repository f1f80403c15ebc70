// Decode products and dequantisation on the host, thread by thread, against ATen in double; and a row's bits alone and in
// company. Codes, scales and x are chosen so that nothing is zero by chance; shapes end inside steps, groups and tiles.
#include "model/gpu/product.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

namespace magister::gpu {
namespace {

using Offset = CodeFormat::Offset;

struct Case {
  int bits, group, N, K, lead = 0;
  Offset offset = Offset::kMiddle;
  bool half_scales = false;
  HostOrder order = HostOrder::kAscending;
  std::int64_t padding = 0;  // bytes between rows
};

std::string name_of(const testing::TestParamInfo<Case>& info) {
  const Case& c = info.param;
  return "b" + std::to_string(c.bits) + "_g" + std::to_string(c.group) + "_n" + std::to_string(c.N) + "_k" + std::to_string(c.K) + "_lead" +
         std::to_string(c.lead) + "_o" + std::to_string(static_cast<int>(c.offset)) + (c.half_scales ? "_f16" : "") +
         (c.order == HostOrder::kDescending ? "_down" : "") + (c.padding > 0 ? "_padded" + std::to_string(c.padding) : "");
}

// A weight as the kernels read it, and the numbers that it stands for.
struct Stored {
  std::vector<unsigned char> rows;
  at::Tensor scales, offsets;  // [N, G]
  at::Tensor value_NK;         // double
  StoredWeight weight;
};

Stored stored_weight(const Case& c) {
  Stored s;
  const std::int64_t row_bytes = (std::int64_t{c.K} * c.bits + 7) / 8 + c.padding;
  s.rows.assign(static_cast<std::size_t>(c.N * row_bytes), 0xcd);
  s.weight.row_bytes = row_bytes;
  s.weight.N = c.N, s.weight.K = c.K, s.weight.lead = c.lead, s.weight.offset = c.offset, s.weight.half_scales = c.half_scales;
  s.weight.rows = s.rows.data();
  if (c.bits == 16) {
    const at::Tensor value = (at::rand({c.N, c.K}) - 0.5).to(at::kBFloat16);
    for (int n = 0; n < c.N; ++n) std::memcpy(s.rows.data() + n * row_bytes, value[n].data_ptr(), static_cast<std::size_t>(c.K) * 2);
    s.value_NK = value.to(at::kDouble);
    return s;
  }
  const at::Tensor codes = at::randint(0, 1 << c.bits, {c.N, c.K}, at::kByte);
  const auto code = codes.accessor<std::uint8_t, 2>();
  for (int n = 0; n < c.N; ++n) {
    unsigned char* row = s.rows.data() + n * row_bytes;
    for (int k = 0; k < c.K; ++k) {
      if (c.bits == 8) row[k] = code[n][k] ^ 0x80;
      if (c.bits == 4) row[k / 2] = static_cast<unsigned char>(k % 2 == 0 ? code[n][k] : row[k / 2] | code[n][k] << 4);
    }
  }
  const std::int64_t G = c.group == 0 ? 1 : (c.lead + c.K - 1) / c.group + 1;
  s.weight.G = static_cast<int>(G);
  s.scales = ((at::rand({c.N, G}) + 0.1) * 0.01).to(c.half_scales ? at::kHalf : at::kBFloat16);
  s.weight.scales = static_cast<const std::uint16_t*>(s.scales.data_ptr());
  if (c.offset == Offset::kZero) s.offsets = at::randint(0, c.bits == 4 ? 17 : 256, {c.N, G}).to(at::kHalf);
  if (c.offset == Offset::kMinimum) s.offsets = (at::rand({c.N, G}) * -0.1).to(at::kHalf);
  if (s.offsets.defined()) s.weight.offsets = static_cast<const std::uint16_t*>(s.offsets.data_ptr());
  const at::Tensor of_k = c.group == 0 ? at::zeros({c.K}, at::kLong) : (at::arange(c.K) + c.lead).div(c.group, "floor").to(at::kLong);
  const at::Tensor scale_NK = s.scales.to(at::kDouble).index_select(1, of_k), counted = codes.to(at::kDouble);
  const at::Tensor offset_NK = s.offsets.defined() ? s.offsets.to(at::kDouble).index_select(1, of_k)
                                                   : at::full({c.N, c.K}, double(1 << (c.bits - 1)), at::kDouble);
  s.value_NK = c.offset == Offset::kMinimum ? counted * scale_NK + offset_NK : (counted - offset_NK) * scale_NK;
  return s;
}

at::Tensor product(const Stored& s, const Case& c, const at::Tensor& x, const at::Tensor& bias, bool float_out = true) {
  at::Tensor out = at::full({x.size(0), c.N + 3}, NAN, float_out ? at::kFloat : at::kBFloat16);  // a row stride of its own
  const float* bias_N = bias.defined() ? bias.data_ptr<float>() : nullptr;
  const ProductArguments arguments{s.weight, static_cast<const Bf16*>(x.data_ptr()), x.stride(0), bias_N, out.data_ptr(), out.stride(0),
                                   static_cast<int>(x.size(0)), float_out};
  decode_product(arguments, c.bits, c.group, Queue{});
  EXPECT_TRUE(out.narrow(1, c.N, 3).isnan().all().item<bool>());
  return out.narrow(1, 0, c.N);
}

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

std::vector<Case> cases() {
  constexpr Offset kMiddle = Offset::kMiddle, kZero = Offset::kZero, kMinimum = Offset::kMinimum;
  constexpr HostOrder kUp = HostOrder::kAscending;
  std::vector<Case> all = {
      {16, 0, 40, 1120}, {16, 0, 17, 72}, {16, 0, 33, 77}, {16, 0, 20, 128, 0, kMiddle, false, kUp, 16},
      {16, 0, 20, 128, 0, kMiddle, false, kUp, 6},
      {8, 0, 33, 1040}, {8, 32, 40, 336}, {8, 64, 24, 208}, {8, 128, 20, 272, 96}, {8, 32, 18, 96, 16}, {8, 128, 20, 130, 5},
      {8, 32, 20, 96, 0, kZero, true}, {8, 128, 20, 160, 0, kZero}, {8, 0, 20, 80, 0, kMinimum, true}, {8, 32, 20, 96, 0, kMinimum, true},
      {4, 0, 33, 2144}, {4, 32, 40, 544}, {4, 64, 24, 288}, {4, 128, 24, 416}, {4, 128, 20, 416, 96}, {4, 64, 20, 160, 32},
      {4, 32, 20, 107, 5},
      {4, 128, 20, 129, 7, kZero}, {4, 32, 20, 160, 0, kZero, true}, {4, 64, 20, 160, 0, kZero}, {4, 128, 20, 160, 0, kZero},
      {4, 32, 20, 160, 0, kMinimum, true}, {4, 64, 20, 160, 0, kMinimum, true}, {4, 128, 20, 160, 32, kMinimum, true},
      {4, 32, 9, 51, 3, kMinimum},
  };
  for (const Case& c : std::vector<Case>(all.begin(), all.end())) {
    if (c.K >= 250 && c.K < 1000) {
      all.push_back(c);
      all.back().order = HostOrder::kDescending;
    }
  }
  all.push_back({4, 32, 16, 2080, 0, kMiddle, false, HostOrder::kDescending});  // eight warps
  return all;
}
INSTANTIATE_TEST_SUITE_P(All, Products, testing::ValuesIn(cases()), name_of);

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
