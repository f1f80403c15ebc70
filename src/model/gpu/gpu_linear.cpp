// Products through the decode kernels or cuBLAS (at::mm); on the host through the emulated kernels or ATen's CPU code.
#include "model/gpu/gpu_linear.h"

#include <ATen/ATen.h>
#include <ATen/ops/_scaled_mm.h>

#include "magister/core/error.h"
#include "model/gpu/fp8_kernel.h"
#include "model/gpu/product.h"

namespace magister::gpu {
namespace {

// Panels [P, X, 48] -> [N, X], a row an output.
at::Tensor rows_of_panels(const at::Tensor& panels_PXW, std::int64_t N, at::Device device) {
  const at::Tensor there = panels_PXW.to(device);
  return there.permute({0, 2, 1}).reshape({-1, there.size(1)}).narrow(0, 0, N);
}

// [N, B] bytes with zeros up to a multiple of 16, for 16-byte loads.
at::Tensor filled_rows(const at::Tensor& bytes_NB) { return at::constant_pad_nd(bytes_NB, {0, (16 - bytes_NB.size(1) % 16) % 16}).contiguous(); }

// The panels' words [N, W], whose first `skip` codes belong to nobody -> bytes of codes from the first input on.
at::Tensor code_bytes(const at::Tensor& words_NW, std::int64_t bits, std::int64_t skip, std::int64_t inputs) {
  const at::Tensor bytes = words_NW.contiguous().view(at::kByte);
  if (bits == 8) return filled_rows(bytes.narrow(1, skip, inputs).bitwise_xor(0x80));
  if (skip % 2 == 0) return filled_rows(bytes.narrow(1, skip / 2, (inputs + 1) / 2));
  const at::Tensor codes = at::stack({bytes.bitwise_and(15), bytes.bitwise_right_shift(4)}, -1).flatten(1).narrow(1, skip, inputs);
  const at::Tensor pairs = at::constant_pad_nd(codes, {0, inputs % 2}).view({codes.size(0), -1, 2});
  return filled_rows(pairs.select(2, 0).bitwise_or(pairs.select(2, 1).bitwise_left_shift(4)));
}

}  // namespace

StoredWeight GpuLinear::stored() const {
  const auto words = [](const at::Tensor& tensor) { return tensor.defined() ? static_cast<const std::uint16_t*>(tensor.const_data_ptr()) : nullptr; };
  const at::Tensor& rows = is_quantized() ? codes_NB : weight_NK;
  StoredWeight weight;
  weight.rows = static_cast<const unsigned char*>(rows.const_data_ptr());
  weight.row_bytes = rows.stride(0) * static_cast<std::int64_t>(rows.element_size());
  weight.N = static_cast<int>(outputs);
  weight.K = static_cast<int>(inputs);
  if (!is_quantized()) return weight;
  weight.scales = words(scales_NG);
  weight.offsets = words(offsets_NG);
  weight.G = static_cast<int>(scales_NG.size(1));
  weight.lead = static_cast<int>(scheme.group == 0 ? 0 : lead);
  weight.offset = offset;
  weight.half_scales = half_scales;
  return weight;
}

std::uint64_t GpuLinear::num_bytes() const {
  std::uint64_t bytes = 0;
  for (const at::Tensor& tensor : {weight_NK, bias_N, codes_NB, scales_NG, offsets_NG, fp8_NK, fp8_scales_1N}) bytes += tensor.defined() ? tensor.nbytes() : 0;
  return bytes;
}

GpuLinear to_device(const Linear& linear, at::Device device) {
  GpuLinear out;
  if (linear.bias_N.defined()) out.bias_N = linear.bias_N.to(device);
  out.inputs = linear.in_features();
  out.outputs = linear.out_features();
  if (!linear.is_quantized()) {
    out.weight_NK = linear.weight_NK.to(device);
    return out;
  }
  out.scheme = linear.scheme;
  out.offset = linear.offset;
  out.lead = linear.lead;
  out.half_scales = linear.scales_PGW.scalar_type() == at::kHalf;
  out.codes_NB = code_bytes(rows_of_panels(linear.panels_PKW, out.outputs, device), linear.scheme.bits(), linear.lead % 8, out.inputs);
  const auto words = [&](const at::Tensor& panels) { return rows_of_panels(panels, out.outputs, device).contiguous().view(at::kShort); };
  out.scales_NG = words(linear.scales_PGW);
  if (linear.offset != CodeFormat::Offset::kMiddle) out.offsets_NG = words(linear.offsets_PGW);
  return out;
}

namespace {

struct ScaledRows {
  at::Tensor e4m3_MK, scale_M;  // Float8_e4m3fn and f32
};

ScaledRows scaled_rows(const at::Tensor& x_MK, const Queue& queue) {
  ScaledRows rows{at::empty(x_MK.sizes(), x_MK.options().dtype(at::kByte)), at::empty({x_MK.size(0)}, x_MK.options().dtype(at::kFloat))};
  const QuantizeRows<Bf16> kernel{static_cast<const Bf16*>(x_MK.const_data_ptr()), rows.e4m3_MK.data_ptr<std::uint8_t>(),
                                  rows.scale_M.data_ptr<float>(), x_MK.size(1)};
  launch(kernel, kernel.shape(x_MK.size(0)), queue);
  rows.e4m3_MK = rows.e4m3_MK.view(at::kFloat8_e4m3fn);
  return rows;
}

// bf16 or f32; on the host the same numbers multiplied in f32.
at::Tensor fp8_product(const GpuLinear& linear, const at::Tensor& x_MK, at::ScalarType out_type, const Queue& queue) {
  const ScaledRows x = scaled_rows(x_MK.contiguous(), queue);
  const at::Tensor scale_M1 = x.scale_M.unsqueeze(1);
  if (queue.on_host()) {
    return (at::mm(x.e4m3_MK.to(at::kFloat), linear.fp8_NK.to(at::kFloat).t()) * scale_M1 * linear.fp8_scales_1N).to(out_type);
  }
  // Row-wise scales give bf16. Sums in the tensor cores' faster way: their 14 bits are far more than the 4 of the factors.
  return at::_scaled_mm(x.e4m3_MK, linear.fp8_NK.t(), scale_M1, linear.fp8_scales_1N, {}, {}, at::kBFloat16, /*use_fast_accum=*/true).to(out_type);
}

}  // namespace

void to_fp8(GpuLinear& linear, const Queue& queue) {
  if (linear.is_quantized() || linear.inputs % 16 != 0 || linear.outputs % 16 != 0) return;
  const ScaledRows rows = scaled_rows(linear.weight_NK, queue);
  linear.fp8_NK = rows.e4m3_MK;
  linear.fp8_scales_1N = rows.scale_M.unsqueeze(0);
  linear.weight_NK.reset();
}

at::Tensor plain_weight(const GpuLinear& linear, at::ScalarType type, const Queue& queue) {
  if (linear.fp8_NK.defined()) return (linear.fp8_NK.to(at::kFloat) * linear.fp8_scales_1N.t()).to(type);
  if (!linear.is_quantized()) return linear.weight_NK.to(type);
  at::Tensor weight_NK = at::empty({linear.outputs, linear.inputs}, linear.codes_NB.options().dtype(type));
  dequantize(linear.stored(), static_cast<int>(linear.scheme.bits()), static_cast<int>(linear.scheme.group), weight_NK.data_ptr(),
             type == at::kFloat, queue);
  return weight_NK;
}

void product_of_few(const GpuLinear& linear, const at::Tensor& x_MK, at::Tensor& out_MN, const Queue& queue) {
  MAGISTER_ASSERT(x_MK.scalar_type() == at::kBFloat16 && x_MK.stride(1) == 1 && out_MN.is_contiguous());
  const ProductArguments arguments{linear.stored(), static_cast<const Bf16*>(x_MK.const_data_ptr()), x_MK.stride(0),
                                   linear.bias_N.defined() ? linear.bias_N.const_data_ptr<float>() : nullptr, out_MN.data_ptr(),
                                   linear.outputs, static_cast<int>(x_MK.size(0)), out_MN.scalar_type() == at::kFloat};
  decode_product(arguments, linear.is_quantized() ? static_cast<int>(linear.scheme.bits()) : 16, static_cast<int>(linear.scheme.group), queue);
}

at::Tensor product_in_tiles(const GpuLinear& linear, const at::Tensor& x_MK, const Queue& queue) {
  const std::int64_t M = x_MK.size(0), filled = (M + kTileRows - 1) / kTileRows * kTileRows;
  at::Tensor weight_KN;
  if (!linear.fp8_NK.defined()) weight_KN = plain_weight(linear, x_MK.scalar_type(), queue).t();
  const at::Tensor x = M == filled ? x_MK : at::constant_pad_nd(x_MK, {0, 0, 0, filled - M});
  at::Tensor out = at::empty({filled, linear.outputs}, x_MK.options());
  for (std::int64_t row = 0; row < filled; row += kTileRows) {
    at::Tensor tile = out.narrow(0, row, kTileRows);
    if (linear.fp8_NK.defined()) {
      tile.copy_(fp8_product(linear, x.narrow(0, row, kTileRows), tile.scalar_type(), queue));
    } else {
      at::mm_out(tile, x.narrow(0, row, kTileRows), weight_KN);
    }
  }
  at::Tensor out_MN = out.narrow(0, 0, M);
  if (linear.bias_N.defined()) out_MN.add_(linear.bias_N);
  return out_MN;
}

at::Tensor product(const GpuLinear& linear, const at::Tensor& x_MK, at::ScalarType out_type, const Queue& queue) {
  if (linear.fp8_NK.defined()) {
    at::Tensor out_MN = fp8_product(linear, x_MK, out_type, queue);
    return linear.bias_N.defined() ? out_MN.add_(linear.bias_N) : out_MN;
  }
  if (x_MK.scalar_type() == at::kBFloat16 && x_MK.size(0) <= kMostDecodeRows) {
    at::Tensor out_MN = at::empty({x_MK.size(0), linear.outputs}, x_MK.options().dtype(out_type));
    product_of_few(linear, x_MK, out_MN, queue);
    return out_MN;
  }
  const at::Tensor weight_KN = plain_weight(linear, x_MK.scalar_type(), queue).t();
  at::Tensor out_MN;
  if (out_type == x_MK.scalar_type()) {
    out_MN = at::mm(x_MK, weight_KN);
  } else if (queue.on_host()) {
    out_MN = at::mm(x_MK.to(out_type), weight_KN.to(out_type));
  } else {
    out_MN = at::mm(x_MK, weight_KN, out_type);
  }
  if (linear.bias_N.defined()) out_MN.add_(linear.bias_N);
  return out_MN;
}

}  // namespace magister::gpu
