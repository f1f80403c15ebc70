// The choice of algorithms when a model is loaded, and the call (see decode_products.h); and decoding_code_bytes(),
// which plans the memory of codes.
#include "model/gpu/decode_products.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>

#include "magister/core/error.h"
#include "magister/device/upload.h"
#include "magister/model/layer_shape.h"
#include "magister/model/pass_memory.h"
#include "model/gpu/code_product.h"
#include "model/gpu/gpu_attention.h"
#include "model/gpu/gpu_latent.h"
#include "model/gpu/gpu_linear.h"
#include "model/gpu/product.h"
#include "model/self_test.h"

namespace magister::gpu {
namespace {

bool is_fp8(const GpuLinear& linear) { return linear.fp8_NK.defined(); }

// The most numbers that a weight of the layers needs in the buffer that numbers_of(weight) counts; undefined for 0.
template <typename NumbersOf>
at::Tensor buffer_for(const GpuWeights& weights, at::ScalarType type, const NumbersOf& numbers_of) {
  std::int64_t most = 0;
  for (const GpuLayer& layer : weights.layers) {
    for (const GpuLinear* linear : layer.products()) {
      if (linear->is_quantized()) most = std::max(most, numbers_of(*linear));
    }
  }
  return most == 0 ? at::Tensor() : at::empty({most}, at::TensorOptions().dtype(type).device(weights.device));
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

void DecodeProducts::multiply_codes(const GpuLinear& linear, const at::Tensor& x_MK, const at::Tensor& out_MN,
                                    const Queue& queue) const {
  MAGISTER_ASSERT(x_MK.size(0) == out_MN.size(0) && out_MN.is_contiguous());
  FewRows rows = few_rows(linear, x_MK);
  rows.arguments.out_MN = out_MN.data_ptr();
  rows.arguments.float_out = out_MN.scalar_type() == at::kFloat;
  code_product(rows.arguments, rows.bits, rows.group, pieces_.data_ptr<float>(), queue);
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
  plain_ = buffer_for(weights, at::kBFloat16,
                      [](const GpuLinear& linear) { return takes_codes(linear) ? 0 : linear.outputs * linear.inputs; });
  pieces_ = buffer_for(weights, at::kFloat, [](const GpuLinear& linear) {
    return takes_codes(linear) ? code_piece_numbers(kMostDecodeRows, linear.outputs, linear.inputs) : 0;
  });
  const auto find = [&](const GpuLinear& linear, at::ScalarType out_type) {
    if (takes_codes(linear)) return;
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
  if (takes_codes(linear)) return multiply_codes(linear, rows.x_MK, out_MN, queue);
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

namespace magister {
namespace {

// Outputs and inputs of a layer's products that may be codes, and the first input that the shard holds.
struct CodedShape {
  std::int64_t N, K, first_input;
};
std::array<CodedShape, 6> coded_shapes(const ModelConfig& config, const Partition& partition, std::int64_t layer) {
  const LayerShape shape = shape_of(config, partition, layer);
  const std::int64_t D = config.hidden_size, value_dim = shape.value_dim(),
                     qkv = shape.latent ? gpu::short_numbers(shape) : shape.qkv_features() - gpu::repeated_keys(shape);
  const auto first_head = static_cast<std::int64_t>(partition.heads.begin),
             first_column = static_cast<std::int64_t>(layer_partition(config, partition, layer).mlp.begin);
  return {{{qkv, D, 0},
           {shape.latent ? shape.heads * shape.head_dim : 0, shape.latent ? shape.latent->query_rank : 0, 0},
           {D, shape.heads * value_dim, first_head * value_dim},
           {shape.gate_numbers, D, 0},
           {(config.gated_mlp ? 2 : 1) * shape.mlp, D, 0},
           {D, shape.mlp, first_column}}};
}

}  // namespace

std::uint64_t decoding_code_bytes(const ModelConfig& config, const Partition& partition) {
  std::int64_t pieces = 0, plain = 0;
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    for (const auto& [N, K, first_input] : coded_shapes(config, partition, layer)) {
      if (N == 0 || K == 0) continue;
      if (gpu::code_product_fits(N, K, first_input)) {
        pieces = std::max(pieces, gpu::code_piece_numbers(kGpuDecodingRows, N, K));
      } else {
        plain = std::max(plain, N * K);
      }
    }
  }
  return static_cast<std::uint64_t>(pieces) * sizeof(float) +
         static_cast<std::uint64_t>(plain) * c10::elementSize(at::kBFloat16);
}

}  // namespace magister
