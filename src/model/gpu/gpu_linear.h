// GpuLinear: a linear layer's slice on a GPU: plain rows, or codes with scales as the decode products read them.
// Few rows go through our own products, which read the weights once; many through cuBLAS in tiles, codes made plain for it first.
// Legend: M rows, K inputs, N outputs, G groups of inputs that share a scale.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "magister/device/launch.h"
#include "magister/model/cpu/matmul.h"
#include "model/gpu/fixed_product.h"
#include "model/gpu/product_step.h"

namespace magister::gpu {

// Rows of cuBLAS's products, widest first, that give a row the same bits at every place of them. cuBLAS chooses its order of sums by the
// number of rows, so not all sizes do; find_tile_sizes() tries them.
using TileSizes = std::vector<std::int64_t>;
// Prompts come in any number: 256 rows are more than the 206 from which an H200 is bound by arithmetic and no longer by the weights.
constexpr std::int64_t kPromptTile = 256;
// Whole passes are long: 2048 rows fill 132 multiprocessors to 97 % with the products of an 8B model.
constexpr std::int64_t kPassTile = 2048;

struct GpuLinear {
  at::Tensor weight_NK;  // in the activations' type; undefined of a quantised one
  at::Tensor bias_N;     // f32 or undefined
  std::int64_t inputs = 0, outputs = 0;
  // Of a quantised one: bytes of codes, rows filled up to 16; scales and offsets as 16-bit words.
  at::Tensor codes_NB, scales_NG, offsets_NG;
  QuantScheme scheme{};
  CodeFormat::Offset offset = CodeFormat::Offset::kMiddle;
  bool half_scales = false;
  std::int64_t lead = 0;
  // Of an fp8 one: e4m3 [N, K] and a scale an output, f32 [1, N].
  at::Tensor fp8_NK, fp8_scales_1N;
  TileSizes prompt_tiles{kPromptTile}, pass_tiles{kPassTile};  // sizes of equal bits
  // Products in tiles give f32 and not x's type: parts of a sum over shards, which is made in f32 anyhow, so that nothing is rounded between
  // the product and the residual stream.
  bool float_out = false;
  FixedProduct fixed{};  // for any number of rows, in place of tiles; undefined where there is none

  bool is_quantized() const { return scheme.on(); }
  StoredWeight stored() const;
  std::uint64_t num_bytes() const;
};

// What a product reads: rows in the activations' type, or, for a weight in fp8, e4m3 as bytes [M, K] with a scale a row, f32 [M, 1].
struct ProductRows {
  at::Tensor x_MK;
  at::Tensor bytes_MK{}, scale_M1{};

  static ProductRows empty_fp8(std::int64_t M, std::int64_t K, at::Device device);
};

// A slice that was read to the CPU -> the device. Plain weights keep their type, packed codes their numbers. send: copies a large contiguous CPU
// tensor to the device in a faster way; may be empty.
using SendTensor = std::function<at::Tensor(const at::Tensor& host)>;
GpuLinear to_device(const Linear& linear, at::Device device, const SendTensor& send = {});

// bf16 weights as e4m3 with a scale an output, for products of 8-bit floats (compute capability 9.0 and newer; 8.9 has them, too): the rows
// of x get a scale each on the way. Weights whose sizes are not multiples of 16, which the tensor cores do not take, stay as they are.
void to_fp8(GpuLinear& linear, const Queue& queue);

// [N, K] in `type` (kBFloat16 or kFloat): the weights themselves, or what the codes stand for.
at::Tensor plain_weight(const GpuLinear& linear, at::ScalarType type, const Queue& queue);

// Fills prompt_tiles and pass_tiles with the sizes from 256 to 4,096 rows whose bits, with x of `type`, are those of kPromptTile and of
// kPassTile. A few products of 4,096 rows, 16,384 for `fixed`; every size that does not fit into the device's memory counts as another.
// On the host of 256 and 512 rows, for both.
// Before that `fixed` is sought, and tiles only where there is none: in a library whose rows change with their number, or that is too old for
// 8-bit floats. algorithms: null for none.
void find_tile_sizes(GpuLinear& linear, at::ScalarType type, const Queue& queue,
                     const std::shared_ptr<const ProductAlgorithms>& algorithms);
inline void find_tile_sizes(GpuLinear& linear, at::ScalarType type, const Queue& queue) {
  const at::ScalarType factors = linear.fp8_NK.defined() ? at::kFloat8_e4m3fn : type;
  find_tile_sizes(linear, type, queue,
                  lt_algorithms(linear.outputs, linear.inputs, factors, linear.float_out ? at::kFloat : type, queue));
}
// Its rule. candidates: sizes, widest first, with the bits that they give to the same rows, undefined where a row's place matters. Where it does with
// the wanted size another one stands for it; where it does with all of them the wanted one is left, and a warning says so.
TileSizes agreeing_sizes(const std::vector<std::pair<std::int64_t, at::Tensor>>& candidates, std::int64_t wanted);

// All products: out[M, N] = x[M, K] * weight^T + bias with f32 sums. bf16 out: our own products round once, cuBLAS's once before the
// bias is added and once after.

// A row's bits do not depend on the others, however many; made for few. In out_type: that of x, or kFloat. Not for fp8.
at::Tensor product(const GpuLinear& linear, const at::Tensor& x_MK, at::ScalarType out_type, const Queue& queue);
// At most kMostDecodeRows rows of bf16 into a place that stays (for CUDA graphs): out_MN bf16 or f32, contiguous. The same bits.
void product_of_few(const GpuLinear& linear, const at::Tensor& x_MK, at::Tensor& out_MN, const Queue& queue);
// By the fixed product at once, else by cuBLAS in tiles of these sizes, the last one filled up: a row's bits do not depend on the others,
// however many. In x's type, or f32 with float_out; of fp8, whose products ATen gives in bf16 alone, that in f32.
at::Tensor product_in_tiles(const GpuLinear& linear, const ProductRows& rows, const TileSizes& sizes,
                            const Queue& queue);
inline at::Tensor product_in_tiles(const GpuLinear& linear, const at::Tensor& x_MK, const TileSizes& sizes,
                                   const Queue& queue) {
  return product_in_tiles(linear, ProductRows{x_MK}, sizes, queue);
}
// The same of a weight in fp8 with places that stay, and no memory of ATen's: for CUDA graphs.
// [M, K] bf16 -> the first M rows of `into`, which has the rows of a tile. Queued.
void to_fp8_rows(const at::Tensor& x_MK, const ProductRows& into, const Queue& queue);
// All rows of the tile, some of which may be anything: a row's bits are its own. out_MN: bf16, [kPromptTile, N].
void product_of_fp8_tile(const GpuLinear& linear, const ProductRows& tile, const at::Tensor& out_MN,
                         const Queue& queue);
// One product by cuBLAS; its bits depend on the number of rows. In out_type: that of x, or kFloat.
at::Tensor product_of_tile(const GpuLinear& linear, const at::Tensor& x_MK, at::ScalarType out_type,
                           const Queue& queue);

}  // namespace magister::gpu
