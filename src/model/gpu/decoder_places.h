// Buffers of decoding passes: the number of their rows, the contents of a row, and so their bytes on the device.
// Legend: R rows, T rows of a tile, D hidden, K inputs of a product.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <utility>

#include "magister/model/kv_pages.h"
#include "magister/model/layer_shape.h"
#include "magister/model/transformer.h"
#include "model/gpu/attention.h"
#include "model/gpu/gpu_linear.h"
#include "model/gpu/product.h"

namespace magister::gpu {

static_assert(kGpuDecodingRows == kPromptTile && kGpuDecodingRows == kMostDecodeRows);
constexpr std::int64_t kPagesAChunk = kAttentionChunk / KvPages::kSlots;

// The number of rows to which a pass is padded. There are few such numbers, so there are few graphs. At most a third of
// the rows are idle.
std::int64_t bucket_of(std::int64_t rows);
std::int64_t next_power_of_two(std::int64_t number);

// True if the decode kernels support the heads of every shard of a group. In a group of four with 2 KV heads for 10
// query heads, one shard may have even groups of heads and the next one not; all shards must do the same, because they
// sum together.
bool kernels_take(const ModelConfig& config, int tp_size, at::ScalarType activations);

// Bytes of the inputs of a pass.
std::int64_t bytes_of_inputs(std::int64_t rows, std::int64_t chunks);

// Numbers per row of the work buffers: the most of any layer of a shard.
struct RowWidths {
  std::int64_t hidden = 0, qkv = 0, attention = 0, mlp = 0;
  std::int64_t up = 0;       // what an MLP's function reads: gate and up, or up
  std::int64_t queries = 0;  // the short vector of latent attention's queries
  std::int64_t given = 0;    // the product of a layer whose keys are its values
  std::int64_t gate = 0;     // of attention's outputs
  std::int64_t squares = 0;  // that the group sums
  std::int64_t sums = 0;     // partial sums of attention, for each chunk of keys
};
RowWidths row_widths(const ModelConfig& config, const Partition& partition);

// f32 numbers of attention's partial sums, for chunks of kAttentionChunk keys. first: the shape of the first layer.
std::int64_t partial_numbers(std::int64_t rows, const LayerShape& first, const RowWidths& widths, std::int64_t chunks);
// Chunks of latent attention for as many keys.
std::int64_t latent_chunks_of(std::int64_t chunks);

// Dtype and numbers per row of every work buffer of a pass, in the order in which GpuDecoder uses them.
std::array<std::pair<at::ScalarType, std::int64_t>, 10> work_places(const RowWidths& widths);

// The first rows of a work buffer, [rows, most], as rows of `width` numbers without gaps.
at::Tensor narrowed(const at::Tensor& rows, std::int64_t width);

// Inputs and outputs of products in 8-bit floats, as whole tiles: cuBLAS's products always have this number of rows. A
// pass fills the first rows; the contents of the others do not change the results.
struct Fp8Places {
  ProductRows normed_TD;       // inputs of products that follow a norm
  at::Tensor bytes, scale_T1;  // inputs of all other products
  at::Tensor rounded_TD;       // output of a block in bf16, before it becomes f32

  Fp8Places() = default;
  Fp8Places(const RowWidths& widths, at::Device device);
  bool defined() const { return bytes.defined(); }
  // Inputs of a product with K inputs that does not follow a norm.
  ProductRows rows_TK(std::int64_t K) const;
  static ProductRows first(const ProductRows& rows, std::int64_t count);
  std::uint64_t num_bytes() const;
};

}  // namespace magister::gpu
