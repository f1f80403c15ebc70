// Products with the decode kernels or cuBLAS (at::mm); on the host with the emulated kernels or ATen's CPU code.
#include "model/gpu/gpu_linear.h"

#include <ATen/ATen.h>
#include <ATen/ops/_scaled_mm.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "magister/core/error.h"
#include "magister/core/log.h"
#include "magister/device/upload.h"
#include "model/gpu/fp8_kernel.h"
#include "model/gpu/product.h"
#include "model/self_test.h"

namespace magister::gpu {
namespace {

// Panels [P, X, 48] -> [N, X], one row per output.
at::Tensor rows_of_panels(const at::Tensor& panels_PXW, std::int64_t N, at::Device device, const SendTensor& send) {
  const at::Tensor there = send && panels_PXW.is_contiguous() ? send(panels_PXW) : panels_PXW.to(device);
  return there.permute({0, 2, 1}).reshape({-1, there.size(1)}).narrow(0, 0, N);
}

// [N, B] bytes, padded with zeros to a multiple of 16, for 16-byte loads.
at::Tensor filled_rows(const at::Tensor& bytes_NB) {
  return at::constant_pad_nd(bytes_NB, {0, (16 - bytes_NB.size(1) % 16) % 16}).contiguous();
}

// The words of panels [N, W], whose first `skip` codes are unused -> bytes of codes, beginning with the first input.
at::Tensor code_bytes(const at::Tensor& words_NW, std::int64_t bits, std::int64_t skip, std::int64_t inputs) {
  const at::Tensor bytes = words_NW.contiguous().view(at::kByte);
  if (bits == 8) return filled_rows(bytes.narrow(1, skip, inputs).bitwise_xor(0x80));
  if (skip % 2 == 0) return filled_rows(bytes.narrow(1, skip / 2, (inputs + 1) / 2));
  const at::Tensor codes =
      at::stack({bytes.bitwise_and(15), bytes.bitwise_right_shift(4)}, -1).flatten(1).narrow(1, skip, inputs);
  const at::Tensor pairs = at::constant_pad_nd(codes, {0, inputs % 2}).view({codes.size(0), -1, 2});
  return filled_rows(pairs.select(2, 0).bitwise_or(pairs.select(2, 1).bitwise_left_shift(4)));
}

}  // namespace

StoredWeight GpuLinear::stored() const {
  const auto words = [](const at::Tensor& tensor) {
    return tensor.defined() ? static_cast<const std::uint16_t*>(tensor.const_data_ptr()) : nullptr;
  };
  const at::Tensor& rows = fp8_NK.defined() ? fp8_NK : is_quantized() ? codes_NB : weight_NK;
  StoredWeight weight;
  weight.rows = static_cast<const unsigned char*>(rows.const_data_ptr());
  weight.row_bytes = rows.stride(0) * static_cast<std::int64_t>(rows.element_size());
  weight.N = static_cast<int>(outputs);
  weight.K = static_cast<int>(inputs);
  if (fp8_NK.defined()) weight.offset = kFloatCodes;
  if (!is_quantized()) return weight;
  weight.scales = words(scales_NG);
  weight.offsets = words(offsets_NG);
  weight.G = static_cast<int>(scales_NG.size(1));
  weight.lead = static_cast<int>(scheme.group == 0 ? 0 : lead);
  weight.offset = offset;
  weight.half_scales = half_scales;
  return weight;
}

std::uint64_t bytes_of(std::initializer_list<at::Tensor> tensors) {
  std::uint64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += tensor.defined() ? tensor.nbytes() : 0;
  return bytes;
}

std::uint64_t GpuLinear::num_bytes() const {
  return bytes_of({weight_NK, bias_N, codes_NB, scales_NG, offsets_NG, fp8_NK, fp8_scales_1N});
}

GpuLinear to_device(const Linear& linear, at::Device device, const SendTensor& send) {
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
  out.codes_NB = code_bytes(rows_of_panels(linear.panels_PKW, out.outputs, device, send), linear.scheme.bits(),
                            linear.lead % 8, out.inputs);
  const auto words = [&](const at::Tensor& panels) {
    return rows_of_panels(panels, out.outputs, device, send).contiguous().view(at::kShort);
  };
  out.scales_NG = words(linear.scales_PGW);
  if (linear.offset != CodeFormat::Offset::kMiddle) out.offsets_NG = words(linear.offsets_PGW);
  return out;
}

namespace {

// The product on the host, summed in f32. ATen's own bf16 product is slow on CPUs without bf16 instructions: one dot
// product per number.
at::Tensor product_on_host(const at::Tensor& x_MK, const at::Tensor& weight_KN) {
  return at::mm(x_MK.to(at::kFloat), weight_KN.to(at::kFloat));
}

// x_MK: bf16.
ProductRows scaled_rows(const at::Tensor& x_MK, const Queue& queue) {
  ProductRows rows = ProductRows::empty_fp8(x_MK.size(0), x_MK.size(1), x_MK.device());
  to_fp8_rows(x_MK, rows, queue);
  return rows;
}

// x: e4m3. out_MN: bf16.
void multiply_fp8(const GpuLinear& linear, const at::Tensor& x_MK, const at::Tensor& scale_M1, at::Tensor& out_MN,
                  bool on_host) {
  if (on_host) {  // the same numbers, multiplied in f32
    out_MN.copy_(product_on_host(x_MK, linear.fp8_NK.t()) * scale_M1 * linear.fp8_scales_1N);
  } else {
    // Uses the tensor cores' faster accumulation: its 14 bits are far more than the 4 bits of the factors.
    at::_scaled_mm_out(out_MN, x_MK, linear.fp8_NK.t(), scale_M1, linear.fp8_scales_1N, {}, {}, at::kBFloat16,
                       /*use_fast_accum=*/true);
  }
}

}  // namespace

void to_fp8_rows(const at::Tensor& x_MK, const ProductRows& into, const Queue& queue) {
  const std::int64_t M = x_MK.size(0), K = x_MK.size(1);
  MAGISTER_ASSERT(x_MK.is_contiguous() && into.bytes_MK.size(0) >= M && into.bytes_MK.size(1) == K);
  const QuantizeRows<Bf16> kernel{static_cast<const Bf16*>(x_MK.const_data_ptr()),
                                  into.bytes_MK.data_ptr<std::uint8_t>(), into.scale_M1.data_ptr<float>(), K};
  launch(kernel, kernel.shape(M), queue);
}

void product_of_fp8_tile(const GpuLinear& linear, const ProductRows& tile, const at::Tensor& out_MN,
                         const Queue& queue) {
  MAGISTER_ASSERT(tile.bytes_MK.size(0) == kPromptTile && out_MN.size(0) == kPromptTile && out_MN.is_contiguous());
  call_library(
      [&linear, tile, out_MN, on_host = queue.on_host()] {
        at::Tensor out = out_MN;
        multiply_fp8(linear, tile.bytes_MK.view(at::kFloat8_e4m3fn), tile.scale_M1, out, on_host);
        if (linear.bias_N.defined()) out.add_(linear.bias_N);
      },
      queue);
}

ProductRows ProductRows::chosen(const at::Tensor& rows_R) const {
  const auto of = [&](const at::Tensor& all) { return all.defined() ? all.index_select(0, rows_R) : all; };
  return {of(x_MK), of(bytes_MK), of(scale_M1)};
}

ProductRows ProductRows::empty_fp8(std::int64_t M, std::int64_t K, at::Device device) {
  const auto options = at::TensorOptions().device(device);
  return {{}, at::empty({M, K}, options.dtype(at::kByte)), at::empty({M, 1}, options.dtype(at::kFloat))};
}

void to_fp8(GpuLinear& linear, const Queue& queue) {
  if (linear.is_quantized() || linear.inputs % 16 != 0 || linear.outputs % 16 != 0) return;
  const ProductRows rows = scaled_rows(linear.weight_NK, queue);
  linear.fp8_NK = rows.bytes_MK.view(at::kFloat8_e4m3fn);
  linear.fp8_scales_1N = rows.scale_M1.t();
  linear.weight_NK.reset();
}

at::Tensor plain_weight(const GpuLinear& linear, at::ScalarType type, const Queue& queue) {
  if (linear.fp8_NK.defined()) return (linear.fp8_NK.to(at::kFloat) * linear.fp8_scales_1N.t()).to(type);
  if (!linear.is_quantized()) return linear.weight_NK.to(type);
  at::Tensor weight_NK = at::empty({linear.outputs, linear.inputs}, linear.codes_NB.options().dtype(type));
  dequantize(linear.stored(), static_cast<int>(linear.scheme.bits()), static_cast<int>(linear.scheme.group),
             weight_NK.data_ptr(), type == at::kFloat, queue);
  return weight_NK;
}

FewRows few_rows(const GpuLinear& linear, const at::Tensor& x_MK) {
  MAGISTER_ASSERT(x_MK.scalar_type() == at::kBFloat16 && x_MK.stride(1) == 1);
  ProductArguments arguments{linear.stored(),
                             static_cast<const Bf16*>(x_MK.const_data_ptr()),
                             x_MK.stride(0),
                             linear.bias_N.defined() ? linear.bias_N.const_data_ptr<float>() : nullptr,
                             nullptr,
                             linear.outputs,
                             static_cast<int>(x_MK.size(0)),
                             false};
  return {arguments, linear.is_quantized() ? static_cast<int>(linear.scheme.bits()) : 16,
          static_cast<int>(linear.scheme.group)};
}

NextWeight next_weight(const GpuLinear& linear, bool paired) {
  // Enough for about 3 us, in which the next product's own blocks begin. Rows of the blocks that an H200 begins with:
  // four for each multiprocessor.
  constexpr std::int64_t kBytes = 12 << 20, kRows = 4 * 16 * kMultiprocessors;
  if (linear.fp8_NK.defined() || linear.outputs == 0) return {};
  const StoredWeight weight = linear.stored();
  const std::int64_t bits = linear.is_quantized() ? linear.scheme.bits() : 16, count = std::min(kRows, linear.outputs),
                     bytes = std::min(linear.inputs * bits / 8, kBytes / count) / 16 * 16;
  if (reinterpret_cast<std::uintptr_t>(weight.rows) % 16 != 0 || weight.row_bytes % 16 != 0 || bytes == 0) return {};
  return {weight.rows, weight.row_bytes, static_cast<int>(count),
          static_cast<int>(paired ? linear.outputs / 2 : count / 2), static_cast<int>(bytes)};
}

void product_of_few(const GpuLinear& linear, const at::Tensor& x_MK, at::Tensor& out_MN, const Queue& queue,
                    const NextWeight& next) {
  MAGISTER_ASSERT(out_MN.is_contiguous());
  FewRows rows = few_rows(linear, x_MK);
  rows.arguments.out_MN = out_MN.data_ptr();
  rows.arguments.float_out = out_MN.scalar_type() == at::kFloat;
  decode_product(rows.arguments, rows.bits, rows.group, queue, next);
}

namespace {

// Rows and weight of a product in tiles: x as it is with the plain weight [K, N], or both in 8-bit floats.
class TileFactors {
 public:
  TileFactors(const GpuLinear& linear, const ProductRows& rows, const Queue& queue)
      : linear_(linear), queue_(queue), x_MK_(rows.x_MK) {
    if (linear.fp8_NK.defined()) {
      const ProductRows scaled = rows.bytes_MK.defined() ? rows : scaled_rows(rows.x_MK.contiguous(), queue);
      x_MK_ = scaled.bytes_MK;
      scale_M1_ = scaled.scale_M1;
    } else {
      MAGISTER_ASSERT(x_MK_.defined());
      weight_KN_ = plain_weight(linear, x_MK_.scalar_type(), queue).t();
    }
  }

  std::int64_t num_rows() const { return x_MK_.size(0); }
  ProductFactors factors() const {
    if (weight_KN_.defined()) return {x_MK_.contiguous(), weight_KN_.t().contiguous()};
    return {x_MK_.view(at::kFloat8_e4m3fn), linear_.fp8_NK, scale_M1_, linear_.fp8_scales_1N};
  }
  void multiply_at_once(at::Tensor& out_MN) const { linear_.fixed.multiply(factors(), out_MN, queue_); }
  at::ScalarType out_type() const {
    return linear_.float_out ? at::kFloat : scale_M1_.defined() ? at::kBFloat16 : x_MK_.scalar_type();
  }
  at::Tensor empty_out(std::int64_t M) const {
    return at::empty({M, linear_.outputs}, x_MK_.options().dtype(out_type()));
  }

  // Writes the product of rows [row, row + out's rows) to `out`, computed in a tile of `size` rows that is padded with
  // zeros.
  void multiply(std::int64_t row, std::int64_t size, at::Tensor out_MN) const {
    const std::int64_t rows = out_MN.size(0);
    const auto tile_of = [&](const at::Tensor& all) {
      const at::Tensor part = all.narrow(0, row, rows);
      return rows == size ? part : at::constant_pad_nd(part, {0, 0, 0, size - rows});
    };
    if (rows == size) return multiply_tile(tile_of, out_MN);
    at::Tensor tile = at::empty({size, linear_.outputs}, out_MN.options());
    multiply_tile(tile_of, tile);
    out_MN.copy_(tile.narrow(0, 0, rows));
  }

  // Multiplies the same rows, repeated as often as `out_MN` has rows.
  void repeat(at::Tensor out_MN) const {
    multiply_tile([rows = out_MN.size(0)](const at::Tensor& all) { return repeated_rows(all, rows); }, out_MN);
  }

 private:
  template <typename TileOf>
  void multiply_tile(const TileOf& tile_of, at::Tensor& out_MN) const {
    if (weight_KN_.defined()) return multiply_plain(tile_of(x_MK_), out_MN);
    const at::Tensor x = tile_of(x_MK_).view(at::kFloat8_e4m3fn), scale_M1 = tile_of(scale_M1_);
    const bool rounds = out_MN.scalar_type() != at::kBFloat16;
    at::Tensor bf16_MN = rounds ? at::empty(out_MN.sizes(), out_MN.options().dtype(at::kBFloat16)) : out_MN;
    multiply_fp8(linear_, x, scale_M1, bf16_MN, queue_.on_host());
    if (rounds) out_MN.copy_(bf16_MN);
  }

  void multiply_plain(const at::Tensor& x_MK, at::Tensor& out_MN) const {
    if (queue_.on_host()) {
      out_MN.copy_(product_on_host(x_MK, weight_KN_));
    } else if (out_MN.scalar_type() == x_MK.scalar_type()) {
      at::mm_out(out_MN, x_MK, weight_KN_);
    } else {
      at::mm_out(out_MN, x_MK, weight_KN_, at::kFloat);
    }
  }

  const GpuLinear& linear_;
  const Queue& queue_;
  at::Tensor x_MK_, scale_M1_, weight_KN_;
};

}  // namespace

at::Tensor product_in_tiles(const GpuLinear& linear, const ProductRows& rows_MK, const TileSizes& sizes,
                            const Queue& queue) {
  const TileFactors factors(linear, rows_MK, queue);
  const std::int64_t M = factors.num_rows();
  at::Tensor out_MN = factors.empty_out(M);
  const bool at_once = linear.fixed.defined() && M > 0;
  if (at_once) factors.multiply_at_once(out_MN);
  for (std::int64_t row = at_once ? M : 0; row < M;) {
    const std::int64_t left = M - row;
    const auto fits = std::find_if(sizes.begin(), sizes.end(), [left](std::int64_t size) { return size <= left; });
    const std::int64_t size = fits == sizes.end() ? sizes.back() : *fits, rows = std::min(size, left);
    factors.multiply(row, size, out_MN.narrow(0, row, rows));
    row += rows;
  }
  if (linear.bias_N.defined()) out_MN.add_(linear.bias_N);
  return out_MN;
}

TileSizes agreeing_sizes(const std::vector<std::pair<std::int64_t, at::Tensor>>& candidates, std::int64_t wanted) {
  // If the wanted size does not give rows their own bits, take the smallest size that does.
  at::Tensor bits;
  for (const auto& [size, rows] : candidates) {
    if (rows.defined() && size >= wanted) bits = rows;
  }
  for (const auto& [size, rows] : candidates) {
    if (rows.defined() && !bits.defined()) bits = rows;
  }
  TileSizes sizes;
  for (const auto& [size, rows] : candidates) {
    if (rows.defined() && at::equal(rows, bits)) sizes.push_back(size);
  }
  if (!sizes.empty()) return sizes;
  log_warning(
      "no product of cuBLAS gives rows the same bits at every position (last bits of rows may depend on their "
      "neighbours)");
  return {wanted};
}

void find_tile_sizes(GpuLinear& linear, at::ScalarType type, const Queue& queue,
                     const std::shared_ptr<const ProductAlgorithms>& algorithms) {
  // Passes of tests have some tens of rows. Padding to 2,048 and trying 4,096 rows took a third of the time of all
  // tests of GPU code.
  constexpr std::int64_t kMostHostTile = 512;
  const at::Tensor block = self_test_block(kTriedBlock, linear.inputs, device_of(queue)).to(type);
  linear.fixed = {};
  const TileFactors factors(linear, {block}, queue);
  linear.fixed = choose_product(algorithms, factors.factors(), factors.out_type(), queue);
  if (linear.fixed.defined()) return;
  std::vector<std::pair<std::int64_t, at::Tensor>> candidates;
  for (const std::int64_t size : {4096, 2048, 1024, 512, 256}) {
    if (queue.on_host() && size > kMostHostTile) continue;
    candidates.emplace_back(size, at::Tensor());
    try {
      at::Tensor out_MN = factors.empty_out(size);
      factors.repeat(out_MN);
      if (rows_repeat(out_MN, kTriedBlock)) candidates.back().second = out_MN.narrow(0, 0, kTriedBlock).clone();
    } catch (const c10::OutOfMemoryError&) {
      continue;  // a pass would not have the memory for it either
    }
  }
  linear.prompt_tiles = agreeing_sizes(candidates, kPromptTile);
  linear.pass_tiles = agreeing_sizes(candidates, queue.on_host() ? kPromptTile : kPassTile);
}

at::Tensor product_of_tile(const GpuLinear& linear, const at::Tensor& x_MK, at::ScalarType out_type,
                           const Queue& queue) {
  const at::Tensor weight_KN = plain_weight(linear, x_MK.scalar_type(), queue).t();
  at::Tensor out_MN;
  if (queue.on_host()) {
    out_MN = product_on_host(x_MK, weight_KN).to(out_type);
  } else if (out_type == x_MK.scalar_type()) {
    out_MN = at::mm(x_MK, weight_KN);
  } else {
    out_MN = at::mm(x_MK, weight_KN, out_type);
  }
  if (linear.bias_N.defined()) out_MN.add_(linear.bias_N);
  return out_MN;
}

at::Tensor product(const GpuLinear& linear, const at::Tensor& x_MK, at::ScalarType out_type, const Queue& queue) {
  constexpr std::int64_t kFloatTile = 64;  // rows of f32 for cuBLAS; the last tile is padded
  MAGISTER_ASSERT(!linear.fp8_NK.defined());
  const std::int64_t M = x_MK.size(0);
  at::Tensor out_MN = at::empty({M, linear.outputs}, x_MK.options().dtype(out_type));
  const bool ours = x_MK.scalar_type() == at::kBFloat16;
  const std::int64_t most = ours ? kMostDecodeRows : kFloatTile;
  for (std::int64_t row = 0; row < M; row += most) {
    const std::int64_t rows = std::min(most, M - row);
    const at::Tensor x = x_MK.narrow(0, row, rows);
    at::Tensor out = out_MN.narrow(0, row, rows);
    if (ours) {
      product_of_few(linear, x, out, queue);
    } else {
      const at::Tensor tile = at::constant_pad_nd(x, {0, 0, 0, kFloatTile - rows});
      out.copy_(product_of_tile(linear, tile, out_type, queue).narrow(0, 0, rows));
    }
  }
  return out_MN;
}

}  // namespace magister::gpu
