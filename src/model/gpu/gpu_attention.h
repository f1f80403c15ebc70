// Attention of a pass on a GPU. Sequences that begin in this pass are read directly from their projections, by flash
// attention over variable lengths. Sequences that continue from a cache are read from its pages.
// Legend: T packed tokens, S sequences, H query and K KV heads of this shard, E head_dim, V numbers of a head's values,
// P pages, N keys of a run.
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
#include "model/gpu/score_blocks.h"

namespace magister::gpu {

// Consecutive sequences that are computed in one call.
struct AttentionRun {
  std::int64_t first_row = 0, num_rows = 0;
  std::vector<std::int64_t> cu_queries{}, cu_keys{};  // begin with 0, S + 1 entries each
  at::Tensor cu_queries_device{}, cu_keys_device{};   // i32
  std::int64_t longest_queries = 0, longest_keys = 0;
  // i64, for a run whose sequences continue from other keys: the place of every key, page * 48 + slot with a cache, or
  // a row of the pass without one. Undefined: the keys are the run's own rows.
  at::Tensor slots_N{};
  // The run with each chunk of a window as a sequence, for windows in chunks; the keys before the first chunk of a
  // sequence belong to one without queries. Undefined: the model has no such windows.
  at::Tensor cu_chunk_queries{}, cu_chunk_keys{};
  bool by_cudnn = false;  // one long text from its beginning on, computed by cuDNN in the layers that cuDNN supports
};

// Most keys of a cached run, unless a single sequence has more. They are gathered out of the pages, and
// gpu_gathered_bytes() plans the memory for it. The bits of a row do not depend on where runs end.
constexpr std::int64_t kMostGatheredKeys = 32768;

struct AttentionPlan {
  std::vector<AttentionRun> runs;
};

// slots: those of each sequence, or empty without a cache. If sequences share prefixes (PackedBatch::prefix_of_S), a
// run has at most as many keys as the pass has rows, because plans count no more. with_cudnn: in a pass without a cache
// and without shared prefixes, each long text is a run of its own. chunk: keys of a window in chunks; 0: the model has
// none.
AttentionPlan plan_attention(const PackedBatch& batch, const std::vector<BlockTable>& slots, at::Device device,
                             bool with_cudnn = false, std::int64_t chunk = 0);

// True if pages hold 8-bit floats: records of 48 (E + 1) bytes, as [P, K, 48, E + 1] of bytes (kv_code_kernels.h).
inline bool holds_codes(const at::Tensor& pages) { return pages.defined() && pages.scalar_type() == at::kByte; }

// Keys and values of the slots out of pages [P, K, 48, E] and [P, K, 48, V], or of their codes: [N, K, E] and
// [N, K, V].
std::pair<at::Tensor, at::Tensor> gathered_keys(const at::Tensor& keys, const at::Tensor& values,
                                                const at::Tensor& slots_N, const Queue& queue);

// True if flash attention supports this: in bf16, with a supported head size, values no wider than keys, no softcap and
// no ALiBi. flash_takes(): and on a GPU.
bool flash_computes(const LayerShape& shape, at::ScalarType dtype);
bool flash_takes(const LayerShape& shape, at::ScalarType dtype, const Queue& queue);

// True if a row's sums have the same order however its sequence is cut: with flash attention, and in double (blocks of
// scores, and the host).
bool prompts_may_be_cut(const LayerShape& shape, bool has_sinks, at::ScalarType dtype, const Queue& queue);

struct GpuLayer;  // src/model/gpu/gpu_weights.h

// Only for norms over the heads of all shards: memory for each token's squares of q and k, f32 [T, 2], and the sum over
// the shards. Otherwise empty.
struct HeadSquares {
  at::Tensor squares_T2;
  std::function<void(at::Tensor&)> add;
};

// Applies norms, rotation and factors to q, k and v in place. qkv_TQ [T, qkv_features()]; tables [P, R/2] and each
// token's row in them; positions_T: i32, read only where positions scale queries. Keys and values are written to their
// slots of the layer's pages, which are undefined without a cache; a layer without keys of its own writes none. Pages
// of codes also round those in qkv_TQ.
template <typename A>
void rotate_heads(const GpuLayer& layer, const HeadSquares& squares, const at::Tensor& qkv_TQ,
                  const at::Tensor& cos_PR2, const at::Tensor& sin_PR2, const at::Tensor& rows_T,
                  const at::Tensor& positions_T, const at::Tensor& keys, const at::Tensor& values,
                  const at::Tensor& slots_T, const Queue& queue);

struct AttentionInput {
  at::Tensor qkv_TQ;            // [T, qkv_features()], rotated
  at::Tensor keys{}, values{};  // pages [P, K, 48, E] and [P, K, 48, V]; undefined without a cache
  // The same rows of the layer that has the keys and values; undefined: qkv_TQ has them.
  at::Tensor kv_TQ{};
  ScoreTerms terms{};
};

// Attention of one run's rows: q [rows, H, E], k [keys, K, E] and v [keys, K, V], with one KV head for each query head
// if `flash` is false or groups are uneven -> outputs [., H, V], appended in the order of the rows.
void attend_run(const AttentionRun& run, const LayerShape& shape, const at::Tensor& q, const at::Tensor& k,
                const at::Tensor& v, bool flash, const ScoreTerms& terms, std::vector<at::Tensor>& outputs);

// Attention of the pass -> [T, H V], contiguous.
at::Tensor attend(const AttentionPlan& plan, const LayerShape& shape, const AttentionInput& input, bool flash,
                  const Queue& queue);

// Numbers of a row that the product of a layer whose keys are its values does not give: its keys, once more.
inline std::int64_t repeated_keys(const LayerShape& shape) {
  return shape.keys_are_values ? shape.own_kv_heads() * shape.head_dim : 0;
}
// Completes the rows of such a product: [T, (H + K) E] to out_TQ [T, (H + 2K) E]. Queued.
template <typename A>
void repeat_keys(const LayerShape& shape, const at::Tensor& rows_TN, const at::Tensor& out_TQ, const Queue& queue);

// out_TA [T, H V] times the function of the layer's gate, in place. gate_TG: [T, gate_numbers]. Queued.
template <typename A>
void gate_outputs(const LayerShape& shape, const at::Tensor& gate_TG, const at::Tensor& out_TA, const Queue& queue);

// True if heads 0 .. H-1 use KV heads 0, .., 0, 1, .., 1 in equal groups, as attention's kernels require.
bool groups_are_even(const LayerShape& shape);

// Arguments of the decode kernels: qkv_RQ [R, qkv_features()] rotated, pages [P, K, 48, E] and [P, K, 48, V], table_RP,
// sequence_R and visible_R i32, partial f32 of attention_scratch() numbers, out_RA [R, H V].
template <typename A>
AttentionArguments<A> paged_arguments(const LayerShape& shape, const at::Tensor& qkv_RQ, const at::Tensor& keys,
                                      const at::Tensor& values, const at::Tensor& table_RP,
                                      const at::Tensor& sequence_R, const at::Tensor& visible_R, std::int64_t chunks,
                                      const at::Tensor& partial, const at::Tensor& out_RA,
                                      const ScoreTerms& terms = {}) {
  const std::int64_t R = qkv_RQ.size(0), H = shape.heads, E = shape.head_dim, V = shape.value_dim();
  const auto numbers = [](const at::Tensor& x) { return x.defined() ? x.const_data_ptr<float>() : nullptr; };
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
          sums + R * H * chunks * V,
          static_cast<int>(R),
          static_cast<int>(H),
          static_cast<int>(shape.kv_heads),
          static_cast<int>(E),
          static_cast<int>(chunks),
          static_cast<int>(shape.sliding_window),
          shape.attention_scale,
          shape.attention_softcap,
          static_cast<int>(V),
          shape.chunked_windows,
          numbers(terms.sinks_H),
          numbers(terms.alibi_H),
          shape.alibi_in_bf16,
          holds_codes(keys)};
}

}  // namespace magister::gpu
