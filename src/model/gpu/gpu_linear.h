// GpuLinear: a linear layer's slice on a GPU: plain rows, or codes with scales in the layout of the decode products.
// Few rows use our own products, which read the weights once. Many rows use cuBLAS in tiles, and codes are first
// converted to plain numbers.
// Legend: M rows, K inputs, N outputs, G groups of inputs that share a scale.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <utility>
#include <vector>

#include "magister/device/launch.h"
#include "magister/model/cpu/matmul.h"
#include "model/gpu/fixed_product.h"
#include "model/gpu/product_step.h"

namespace magister::gpu {

// Bytes of those that are defined.
std::uint64_t bytes_of(std::initializer_list<at::Tensor> tensors);

// Numbers of rows of cuBLAS's products, widest first, that give a row the same bits at every position. cuBLAS chooses
// its order of sums by the number of rows, so not all sizes do; find_tile_sizes() tries them.
using TileSizes = std::vector<std::int64_t>;
// Tile for prompts, which have any number of rows: 256 is more than the 206 rows above which an H200 is limited by
// arithmetic instead of reading the weights.
constexpr std::int64_t kPromptTile = 256;
// Tile for whole passes, which are long: 2048 rows fill 132 multiprocessors to 97 % with the products of an 8B model.
constexpr std::int64_t kPassTile = 2048;

struct GpuLinear {
  at::Tensor weight_NK;  // in the activations' dtype; undefined if quantised
  at::Tensor bias_N;     // f32 or undefined
  std::int64_t inputs = 0, outputs = 0;
  // Only if quantised: bytes of codes, with rows padded to 16; scales and offsets as 16-bit words.
  at::Tensor codes_NB, scales_NG, offsets_NG;
  QuantScheme scheme{};
  CodeFormat::Offset offset = CodeFormat::Offset::kMiddle;
  bool half_scales = false;
  std::int64_t lead = 0;
  // Only in fp8: e4m3 [N, K], and one scale per output, f32 [1, N].
  at::Tensor fp8_NK, fp8_scales_1N;
  TileSizes prompt_tiles{kPromptTile}, pass_tiles{kPassTile};  // sizes with equal bits
  // Products in tiles return f32 instead of x's dtype. This is for parts of a sum over shards, which is computed in
  // f32, so that nothing is rounded between the product and the residual stream.
  bool float_out = false;
  FixedProduct fixed{};  // algorithm for any number of rows, instead of tiles; undefined if there is none

  bool is_quantized() const { return scheme.on(); }
  StoredWeight stored() const;
  std::uint64_t num_bytes() const;
};

// Input of a product: rows in the activations' dtype, or, for a weight in fp8, e4m3 as bytes [M, K] with one scale per
// row, f32 [M, 1].
struct ProductRows {
  at::Tensor x_MK;
  at::Tensor bytes_MK{}, scale_M1{};

  // rows_R: i64.
  ProductRows chosen(const at::Tensor& rows_R) const;
  static ProductRows empty_fp8(std::int64_t M, std::int64_t K, at::Device device);
};

// Copies a slice from the CPU to the device. Plain weights keep their dtype; packed codes keep their numbers. send: a
// faster copy of a large contiguous CPU tensor to the device; may be empty.
using SendTensor = std::function<at::Tensor(const at::Tensor& host)>;
GpuLinear to_device(const Linear& linear, at::Device device, const SendTensor& send = {});

// Converts bf16 weights to e4m3 with one scale per output, for products of 8-bit floats (compute capability 8.9 and
// newer). The rows of x also get a scale each. Weights whose sizes are not multiples of 16 stay as they are, because
// the tensor cores do not support them.
void to_fp8(GpuLinear& linear, const Queue& queue);

// [N, K] in `type` (kBFloat16 or kFloat): the weights, or the numbers that the codes stand for.
at::Tensor plain_weight(const GpuLinear& linear, at::ScalarType type, const Queue& queue);

// Looks first for `fixed`, with products of up to 16,384 rows. If there is none (in a library whose algorithms depend
// on the number of rows, or that is too old for 8-bit floats), fills prompt_tiles and pass_tiles with the sizes from
// 256 to 4,096 rows that give, for x of `type`, the same bits as kPromptTile and kPassTile. On the host it tries 256
// and 512 rows, for both. Sizes that do not fit into the device's memory are left out. algorithms: null for none.
void find_tile_sizes(GpuLinear& linear, at::ScalarType type, const Queue& queue,
                     const std::shared_ptr<const ProductAlgorithms>& algorithms);
inline void find_tile_sizes(GpuLinear& linear, at::ScalarType type, const Queue& queue) {
  const at::ScalarType factors = linear.fp8_NK.defined() ? at::kFloat8_e4m3fn : type;
  find_tile_sizes(linear, type, queue,
                  lt_algorithms(linear.outputs, linear.inputs, factors, linear.float_out ? at::kFloat : type, queue));
}
// The rule of find_tile_sizes(). candidates: sizes, widest first, with the bits that they give to the same rows;
// undefined if the position of a row matters. If it matters for the wanted size, another size replaces it. If it
// matters for all sizes, the wanted one is returned with a warning.
TileSizes agreeing_sizes(const std::vector<std::pair<std::int64_t, at::Tensor>>& candidates, std::int64_t wanted);

// All products compute out[M, N] = x[M, K] * weight^T + bias with f32 sums. If out is bf16, our own products round
// once; cuBLAS's round once before the bias is added and once after.

// The bits of a row do not depend on the other rows, however many. Made for few rows. The result is in out_type: x's
// dtype, or kFloat. Not for fp8.
at::Tensor product(const GpuLinear& linear, const at::Tensor& x_MK, at::ScalarType out_type, const Queue& queue);
// The arguments of such a product, without a place for its result.
struct FewRows {
  ProductArguments arguments;
  int bits, group;
};
FewRows few_rows(const GpuLinear& linear, const at::Tensor& x_MK);
// At most kMostDecodeRows rows of bf16 into an existing tensor (for CUDA graphs). out_MN: bf16 or f32, contiguous. The
// same bits as product().
void product_of_few(const GpuLinear& linear, const at::Tensor& x_MK, at::Tensor& out_MN, const Queue& queue,
                    const NextWeight& next = {});
// The hint for the product before one of a few rows. paired: it is gate_product().
NextWeight next_weight(const GpuLinear& linear, bool paired = false);
// Uses the fixed product for all rows at once, or else cuBLAS in tiles of these sizes, the last one padded. The bits of
// a row do not depend on the other rows, however many. The result is in x's dtype, or f32 with float_out. Products in
// fp8 are bf16 in ATen, and then converted to f32 with float_out.
at::Tensor product_in_tiles(const GpuLinear& linear, const ProductRows& rows, const TileSizes& sizes,
                            const Queue& queue);
inline at::Tensor product_in_tiles(const GpuLinear& linear, const at::Tensor& x_MK, const TileSizes& sizes,
                                   const Queue& queue) {
  return product_in_tiles(linear, ProductRows{x_MK}, sizes, queue);
}
// The next two are for a weight in fp8 and CUDA graphs: they use existing tensors and allocate no memory with ATen.
// Writes the rows of x_MK [M, K] bf16 to the first M rows of `into`, which has the rows of a tile. Queued.
void to_fp8_rows(const at::Tensor& x_MK, const ProductRows& into, const Queue& queue);
// Multiplies all rows of the tile; unused rows may hold anything, because the bits of a row are its own. out_MN: bf16,
// [kPromptTile, N].
void product_of_fp8_tile(const GpuLinear& linear, const ProductRows& tile, const at::Tensor& out_MN,
                         const Queue& queue);
// One product with cuBLAS; its bits depend on the number of rows. The result is in out_type: x's dtype, or kFloat.
at::Tensor product_of_tile(const GpuLinear& linear, const at::Tensor& x_MK, at::ScalarType out_type,
                           const Queue& queue);

}  // namespace magister::gpu
