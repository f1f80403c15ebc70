// The choice of algorithms when a model is loaded, and the call; see decode_products.h.
#include "model/gpu/decode_products.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "magister/core/error.h"
#include "magister/device/upload.h"
#include "model/gpu/gpu_linear.h"
#include "model/gpu/product.h"
#include "model/self_test.h"

namespace magister::gpu {
namespace {

bool is_fp8(const GpuLinear& linear) { return linear.fp8_NK.defined(); }

// Numbers of the largest weight of the layers that is held in codes.
std::int64_t most_coded_numbers(const GpuWeights& weights) {
  std::int64_t most = 0;
  for (const GpuLayer& layer : weights.layers) {
    for (const GpuLinear* linear : layer.products()) {
      if (linear->is_quantized()) most = std::max(most, linear->outputs * linear->inputs);
    }
  }
  return most;
}

}  // namespace

at::Tensor DecodeProducts::plain(const GpuLinear& linear, const Queue& queue) const {
  if (!linear.is_quantized()) return linear.weight_NK;
  const at::Tensor weight_NK =
      plain_.narrow(0, 0, linear.outputs * linear.inputs).view({linear.outputs, linear.inputs});
  dequantize(linear.stored(), static_cast<int>(linear.scheme.bits()), static_cast<int>(linear.scheme.group),
             weight_NK.data_ptr(), /*float_out=*/false, queue);
  return weight_NK;
}

ProductFactors DecodeProducts::factors_of(const GpuLinear& linear, const ProductRows& rows, const Queue& queue) const {
  if (!is_fp8(linear)) return {rows.x_MK, plain(linear, queue)};
  return {rows.bytes_MK.view(at::kFloat8_e4m3fn), linear.fp8_NK, rows.scale_M1, linear.fp8_scales_1N};
}

FixedProduct DecodeProducts::chosen_for(const GpuLinear& linear, at::ScalarType out_type, const Queue& queue,
                                        const Algorithms& algorithms) const {
  const at::Device device = device_of(queue);
  ProductRows block{self_test_block(kTriedBlock, linear.inputs, device).to(at::kBFloat16)};
  if (is_fp8(linear)) {
    const ProductRows codes = ProductRows::empty_fp8(kTriedBlock, linear.inputs, device);
    to_fp8_rows(block.x_MK, codes, queue);
    block = codes;
  }
  const at::ScalarType type = is_fp8(linear) ? at::kFloat8_e4m3fn : at::kBFloat16;
  return choose_product(algorithms(linear.outputs, linear.inputs, type, out_type, queue, kMostDecodeRows),
                        factors_of(linear, block, queue), out_type, queue, kMostDecodeRows);
}

void DecodeProducts::queue_product(const FixedProduct& product, const GpuLinear& linear, const ProductRows& rows,
                                   const at::Tensor& out_MN, const Queue& queue) const {
  const ProductFactors factors = factors_of(linear, rows, queue);
  MAGISTER_ASSERT(product.defined() && factors.x_MK.is_contiguous() && factors.x_MK.size(0) == out_MN.size(0) &&
                  factors.x_MK.size(0) <= kMostDecodeRows);
  call_library(
      [product, factors, bias_N = linear.bias_N, out_MN, queue] {
        at::Tensor out = out_MN;
        product.multiply(factors, out, queue);
        if (bias_N.defined()) out.add_(bias_N);
      },
      queue);
}

DecodeProducts::DecodeProducts(const GpuWeights& weights, const Queue& queue, const Algorithms& algorithms) {
  if (const std::int64_t numbers = most_coded_numbers(weights); numbers > 0)
    plain_ = at::empty({numbers}, at::TensorOptions().dtype(at::kBFloat16).device(weights.device));
  const auto find = [&](const GpuLinear& linear, at::ScalarType out_type) {
    MAGISTER_ASSERT(is_fp8(linear) || linear.is_quantized() || linear.weight_NK.scalar_type() == at::kBFloat16);
    FixedProduct& product = of_shape_[out_type == at::kFloat ? 1 : 0][{linear.outputs, linear.inputs, is_fp8(linear)}];
    if (!product.defined()) product = chosen_for(linear, out_type, queue, algorithms);
    MAGISTER_CHECK(product.defined(), ExitCode::kConfig,
                   "model.decoding: throughput cannot be used on {}: cuBLASLt has no algorithm for {} x {} weights{} "
                   "that gives each row its own bits (texts would depend on their neighbours); remove the key",
                   weights.device.str(), linear.outputs, linear.inputs,
                   is_fp8(linear) ? " in fp8 (from cuBLAS 12.9 and compute capability 9.0 on)" : "");
  };
  for (const GpuLayer& layer : weights.layers) {
    find(layer.qkv_proj, at::kBFloat16);
    if (layer.latent && layer.latent->q_up_proj.outputs > 0) find(layer.latent->q_up_proj, at::kBFloat16);
    find(layer.o_proj, at::kFloat);
    if (layer.has_gate()) find(layer.attention_gate, at::kBFloat16);
    find(layer.gate_up_proj, at::kBFloat16);
    find(layer.down_proj, at::kFloat);
  }
  head_ = chosen_for(weights.head, at::kFloat, queue, algorithms);
}

void DecodeProducts::multiply(const GpuLinear& linear, const ProductRows& rows, const at::Tensor& out_MN,
                              const Queue& queue) const {
  const auto& of_shape = of_shape_[out_MN.scalar_type() == at::kFloat ? 1 : 0];
  const auto found = of_shape.find({linear.outputs, linear.inputs, is_fp8(linear)});
  MAGISTER_ASSERT(found != of_shape.end());
  queue_product(found->second, linear, rows, out_MN, queue);
}

void DecodeProducts::multiply_by_head(const GpuLinear& head, const at::Tensor& x_MK, const at::Tensor& out_MN,
                                      const Queue& queue) const {
  queue_product(head_, head, {x_MK}, out_MN, queue);
}

}  // namespace magister::gpu
