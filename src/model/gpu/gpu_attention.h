// Attention of a pass on a GPU. Sequences that begin in this pass are read where their projections stand, by flash attention over
// variable lengths; those that go on from a cache are read from its pages.
// Legend: T packed tokens, S sequences, H query and K KV heads of this shard, E head_dim, P pages, N keys of a run.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "magister/device/launch.h"
#include "magister/model/batch.h"
#include "magister/model/kv_pages.h"
#include "magister/model/layer_shape.h"
#include "model/gpu/attention_kernels.h"

namespace magister::gpu {

// Sequences one after the other that are treated alike, in one call.
struct AttentionRun {
  std::int64_t first_row = 0, num_rows = 0;
  std::vector<std::int64_t> cu_queries{}, cu_keys{};  // from 0, S + 1 each
  at::Tensor cu_queries_device{}, cu_keys_device{};   // i32
  std::int64_t longest_queries = 0, longest_keys = 0;
  // i64, of a run whose sequences go on from others' keys: of every key page * 48 + place, or without a cache its row in the pass;
  // undefined: the keys are its own rows.
  at::Tensor slots_N{};
  bool by_cudnn = false;  // one text, long and from its beginning on: by cuDNN in the layers that it takes
};

// Keys of a cached run, unless one sequence alone has more: they are gathered out of the pages, and what that takes is planned
// (gpu_gathered_bytes). A row's bits do not depend on where runs end.
constexpr std::int64_t kMostGatheredKeys = 32768;

struct AttentionPlan {
  std::vector<AttentionRun> runs;
};

// slots: of each sequence, or empty without a cache. Of beginnings that a pass shares (PackedBatch::prefix_of_S) a run has no more keys than the
// pass has rows, for no plan counts more. with_cudnn: long texts of a pass without a cache and without such beginnings are runs of their own.
AttentionPlan plan_attention(const PackedBatch& batch, const std::vector<BlockTable>& slots, at::Device device,
                             bool with_cudnn = false);

// Keys and values of the slots out of pages [P, K, 48, E], [N, K, E] each.
std::pair<at::Tensor, at::Tensor> gathered_keys(const at::Tensor& keys, const at::Tensor& values,
                                                const at::Tensor& slots_N, const Queue& queue);

// Whether flash attention computes it: on a GPU, in bf16, with heads of a size that it has, scores without a cap.
bool flash_takes(const LayerShape& shape, at::ScalarType dtype, const Queue& queue);

// Whether a row's sums have one order however its sequence is cut: by flash attention, and in double, which capped scores and the host have.
bool prompts_may_be_cut(const LayerShape& shape, at::ScalarType dtype, const Queue& queue);

struct GpuLayer;  // src/model/gpu/gpu_weights.h

// Of norms over the heads of all shards: where each token's squares of q and k stand, f32 [T, 2], and how the shards add them. Else empty.
struct HeadSquares {
  at::Tensor squares_T2;
  std::function<void(at::Tensor&)> add;
};

// Norms and rotation of q and k in place: qkv_TQ [T, (H + 2K) E], tables [P, R/2] and each token's row in them; keys and values go to
// their slots of the layer's pages, undefined without a cache.
template <typename A>
void rotate_heads(const GpuLayer& layer, const HeadSquares& squares, const at::Tensor& qkv_TQ,
                  const at::Tensor& cos_PR2, const at::Tensor& sin_PR2, const at::Tensor& rows_T,
                  const at::Tensor& keys, const at::Tensor& values, const at::Tensor& slots_T, const Queue& queue);

// qkv_TQ [T, (H + 2K) E], rotated; keys and values [P, K, 48, E] of the layer, undefined without a cache. -> [T, H E].
at::Tensor attend(const AttentionPlan& plan, const LayerShape& shape, const at::Tensor& qkv_TQ, const at::Tensor& keys,
                  const at::Tensor& values, bool flash, const Queue& queue);

// Queries at once where scores are capped, and copies of their scores, f64, that stand in memory at a time, for plans.
constexpr std::int64_t kCappedQueries = 128;
constexpr std::int64_t kCappedCopies = 3;

// Whether heads 0 .. H-1 use KV heads 0, .., 0, 1, .., 1 in equal groups: what attention's kernels take for granted.
bool groups_are_even(const LayerShape& shape);

// Of the decode kernels: qkv_RQ [R, (H + 2K) E] rotated, pages [P, K, 48, E], table_RP, sequence_R and visible_R i32, partial f32 of
// attention_scratch() numbers, out_RA [R, H E].
template <typename A>
AttentionArguments<A> paged_arguments(const LayerShape& shape, const at::Tensor& qkv_RQ, const at::Tensor& keys,
                                      const at::Tensor& values, const at::Tensor& table_RP,
                                      const at::Tensor& sequence_R, const at::Tensor& visible_R, std::int64_t chunks,
                                      const at::Tensor& partial, const at::Tensor& out_RA) {
  const std::int64_t R = qkv_RQ.size(0), H = shape.heads, E = shape.head_dim;
  auto* sums = static_cast<float*>(partial.data_ptr());
  return {static_cast<const A*>(qkv_RQ.const_data_ptr()),
          qkv_RQ.size(1),
          static_cast<const A*>(keys.const_data_ptr()),
          static_cast<const A*>(values.const_data_ptr()),
          table_RP.const_data_ptr<std::int32_t>(),
          sequence_R.const_data_ptr<std::int32_t>(),
          visible_R.const_data_ptr<std::int32_t>(),
          static_cast<A*>(out_RA.data_ptr()),
          table_RP.size(1),
          out_RA.size(1),
          sums,
          sums + R * H * chunks * E,
          static_cast<int>(R),
          static_cast<int>(H),
          static_cast<int>(shape.kv_heads),
          static_cast<int>(E),
          static_cast<int>(chunks),
          static_cast<int>(shape.sliding_window),
          shape.attention_scale,
          shape.attention_softcap};
}

}  // namespace magister::gpu
