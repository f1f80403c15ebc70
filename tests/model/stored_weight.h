// Weights in the form that the decode products read, with their values, and a product on a queue's device: shared by
// the tests on the host and on a GPU. Codes, scales and x are chosen so that nothing is zero by chance; shapes end
// inside steps, groups and tiles.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "magister/device/upload.h"
#include "model/gpu/product.h"

namespace magister::gpu {

using Offset = CodeFormat::Offset;

struct ProductCase {
  int bits, group, N, K, lead = 0;
  Offset offset = Offset::kMiddle;
  bool half_scales = false;
  HostOrder order = HostOrder::kAscending;
  std::int64_t padding = 0;  // bytes between rows
};

inline std::string product_name(const testing::TestParamInfo<ProductCase>& info) {
  const ProductCase& c = info.param;
  return "b" + std::to_string(c.bits) + "_g" + std::to_string(c.group) + "_n" + std::to_string(c.N) + "_k" +
         std::to_string(c.K) + "_lead" + std::to_string(c.lead) + "_o" + std::to_string(static_cast<int>(c.offset)) +
         (c.half_scales ? "_f16" : "") + (c.order == HostOrder::kDescending ? "_down" : "") +
         (c.padding > 0 ? "_padded" + std::to_string(c.padding) : "");
}

// A weight in the kernels' form, and its values.
struct Stored {
  at::Tensor rows;             // bytes
  at::Tensor scales, offsets;  // [N, G]
  at::Tensor value_NK;         // double
  StoredWeight weight;

  // Its place in memory; value_NK stays.
  Stored to(at::Device device) const {
    Stored there = *this;
    there.rows = rows.to(device);
    there.weight.rows = there.rows.data_ptr<std::uint8_t>();
    const auto words = [&](at::Tensor& tensor) {
      if (tensor.defined()) tensor = tensor.to(device);
      return tensor.defined() ? static_cast<const std::uint16_t*>(tensor.data_ptr()) : nullptr;
    };
    there.weight.scales = words(there.scales);
    there.weight.offsets = words(there.offsets);
    return there;
  }
};

inline Stored stored_weight(const ProductCase& c) {
  Stored s;
  const std::int64_t row_bytes = (std::int64_t{c.K} * c.bits + 7) / 8 + c.padding;
  s.rows = at::full({c.N * row_bytes}, 0xcd, at::kByte);
  auto* const bytes = s.rows.data_ptr<std::uint8_t>();
  s.weight.row_bytes = row_bytes;
  s.weight.N = c.N, s.weight.K = c.K, s.weight.lead = c.lead, s.weight.offset = c.offset,
  s.weight.half_scales = c.half_scales;
  s.weight.rows = bytes;
  if (c.bits == 16) {
    const at::Tensor value = (at::rand({c.N, c.K}) - 0.5).to(at::kBFloat16);
    for (int n = 0; n < c.N; ++n)
      std::memcpy(bytes + n * row_bytes, value[n].data_ptr(), static_cast<std::size_t>(c.K) * 2);
    s.value_NK = value.to(at::kDouble);
    return s;
  }
  const at::Tensor codes = at::randint(0, 1 << c.bits, {c.N, c.K}, at::kByte);
  const auto code = codes.accessor<std::uint8_t, 2>();
  for (int n = 0; n < c.N; ++n) {
    unsigned char* row = bytes + n * row_bytes;
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
  const at::Tensor of_k =
      c.group == 0 ? at::zeros({c.K}, at::kLong) : (at::arange(c.K) + c.lead).div(c.group, "floor").to(at::kLong);
  const at::Tensor scale_NK = s.scales.to(at::kDouble).index_select(1, of_k), counted = codes.to(at::kDouble);
  const at::Tensor offset_NK = s.offsets.defined() ? s.offsets.to(at::kDouble).index_select(1, of_k)
                                                   : at::full({c.N, c.K}, double(1 << (c.bits - 1)), at::kDouble);
  s.value_NK = c.offset == Offset::kMinimum ? counted * scale_NK + offset_NK : (counted - offset_NK) * scale_NK;
  return s;
}

// Computes on the queue's device; returns the result on the CPU. Columns after a row's own must stay unchanged.
inline at::Tensor product(const Stored& stored, const ProductCase& c, const at::Tensor& x_MK, const at::Tensor& bias_N,
                          bool float_out = true, const Queue& queue = {}) {
  const at::Device device = device_of(queue);
  const Stored s = stored.to(device);
  const at::Tensor x = x_MK.to(device), bias = bias_N.defined() ? bias_N.to(device) : bias_N;
  const at::ScalarType type = float_out ? at::kFloat : at::kBFloat16;
  at::Tensor out = at::full({x.size(0), c.N + 3}, NAN, x.options().dtype(type));  // a row stride of its own
  const float* added = bias.defined() ? bias.data_ptr<float>() : nullptr;
  const ProductArguments arguments{s.weight,
                                   static_cast<const Bf16*>(x.data_ptr()),
                                   x.stride(0),
                                   added,
                                   out.data_ptr(),
                                   out.stride(0),
                                   static_cast<int>(x.size(0)),
                                   float_out};
  decode_product(arguments, c.bits, c.group, queue);
  out = out.cpu();
  EXPECT_TRUE(out.narrow(1, c.N, 3).isnan().all().item<bool>());
  return out.narrow(1, 0, c.N);
}

inline std::vector<ProductCase> product_cases() {
  constexpr Offset kMiddle = Offset::kMiddle, kZero = Offset::kZero, kMinimum = Offset::kMinimum;
  constexpr HostOrder kUp = HostOrder::kAscending;
  std::vector<ProductCase> all = {
      {16, 0, 40, 1120},
      {16, 0, 17, 72},
      {16, 0, 33, 77},
      {16, 0, 20, 128, 0, kMiddle, false, kUp, 16},
      {16, 0, 20, 128, 0, kMiddle, false, kUp, 6},
      {16, 0, 18, 2120},  // 67 steps: sixteen chains
      {16, 0, 1, 2048},
      {8, 128, 3, 4160, 96},
      {8, 0, 33, 1040},
      {8, 32, 40, 336},
      {8, 64, 24, 208},
      {8, 128, 20, 272, 96},
      {8, 32, 18, 96, 16},
      {8, 128, 20, 130, 5},
      {8, 32, 20, 96, 0, kZero, true},
      {8, 128, 20, 160, 0, kZero},
      {8, 0, 20, 80, 0, kMinimum, true},
      {8, 32, 20, 96, 0, kMinimum, true},
      {8, 64, 18, 4208},
      {4, 0, 33, 2144},
      {4, 32, 17, 8224},
      {4, 32, 40, 544},
      {4, 64, 24, 288},
      {4, 128, 24, 416},
      {4, 128, 20, 416, 96},
      {4, 64, 20, 160, 32},
      {4, 32, 20, 107, 5},
      {4, 128, 20, 129, 7, kZero},
      {4, 32, 20, 160, 0, kZero, true},
      {4, 64, 20, 160, 0, kZero},
      {4, 128, 20, 160, 0, kZero},
      {4, 32, 20, 160, 0, kMinimum, true},
      {4, 64, 20, 160, 0, kMinimum, true},
      {4, 128, 20, 160, 32, kMinimum, true},
      {4, 32, 9, 51, 3, kMinimum},
  };
  for (const ProductCase& c : std::vector<ProductCase>(all.begin(), all.end())) {
    if (c.K >= 250 && c.K < 1000) {
      all.push_back(c);
      all.back().order = HostOrder::kDescending;
    }
  }
  all.push_back({4, 32, 16, 2080, 0, kMiddle, false, HostOrder::kDescending});  // eight warps
  return all;
}
}  // namespace magister::gpu
