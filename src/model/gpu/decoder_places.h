// The places that decoding passes work in: how many rows they have, what stands in a row, and so what they take of the device's memory.
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

// The number of rows that so many are filled up to: few enough graphs, and at most a third of the rows idle.
std::int64_t bucket_of(std::int64_t rows);
std::int64_t next_power_of_two(std::int64_t number);

// Whether the decode kernels take the heads of every shard of a group; of experts the host must read the choice in every layer. Of a
// group of four with 2 KV heads for 10 query heads one shard may have its heads in even groups and the next one not, and the shards
// must do the same: their sums meet.
bool kernels_take(const ModelConfig& config, int tp_size, at::ScalarType activations);

// Of the inputs of a pass.
std::int64_t bytes_of_inputs(std::int64_t rows, std::int64_t chunks);

// Numbers of a row in every place that passes work in, in the order of GpuDecoder's, and their types.
std::array<std::pair<at::ScalarType, std::int64_t>, 8> work_places(std::int64_t D, const LayerShape& shape);

// What products in 8-bit floats read and give, in whole tiles: cuBLAS's products have always as many rows, of which a pass fills the first, and what
// stands in the others changes nothing.
struct Fp8Places {
  ProductRows normed_TD;       // for the products behind a norm
  at::Tensor bytes, scale_T1;  // for all others
  at::Tensor rounded_TD;       // what joins the residual stream, bf16, before it is f32

  Fp8Places() = default;
  Fp8Places(std::int64_t D, const LayerShape& shape, at::Device device);
  bool defined() const { return bytes.defined(); }
  // Of products with K inputs that do not stand behind a norm.
  ProductRows rows_TK(std::int64_t K) const;
  static ProductRows first(const ProductRows& rows, std::int64_t count);
  std::uint64_t num_bytes() const;
};

}  // namespace magister::gpu
