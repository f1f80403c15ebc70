// Latent attention (MLA) in the space of latents: queries are multiplied by the keys' second product, meet the latents
// of all keys, and sums of latents are multiplied by the values' second product. So the pages hold one vector per token
// for all heads, and no key or value of a head is made. blocks_reference.cpp makes them, as transformers does.
// Where an indexer chooses keys, a tile is one row: its latents are gathered, block by block, for all heads.
// Source: DeepSeek-V2, arXiv 2405.04434, section 2.1; transformers' DeepseekV3Attention and DeepseekV32Attention.
// Legend: C rank of the latent, W its width with the rotated key, N nope_dim, R rows of a tile.
#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "magister/model/cpu/cpu_kernels.h"
#include "model/cpu/attention.h"
#include "model/cpu/block_norms.h"
#include "model/cpu/page_runs.h"

namespace magister {

namespace {

constexpr auto kEps = static_cast<float>(LatentConfig::kNormEps);

// out[c, r] = x[r, c]; out has kLatentRows columns, of which `rows` are written.
void transpose_rows(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t columns, float* out) {
  for (std::int64_t c = 0; c < columns; ++c) {
    for (std::int64_t r = 0; r < rows; ++r) out[c * LayerBuffers::kLatentRows + r] = x[r * stride + c];
  }
}

// A head's queries in the space of latents, then their rotated part: [rows, W].
void absorb(const float* q, std::int64_t q_stride, std::int64_t rows, const Linear& key_up, const LatentConfig& latent,
            float* out, std::int64_t out_stride) {
  linear_tile(q, q_stride, rows, key_up, out, out_stride, false);
  for (std::int64_t r = 0; r < rows; ++r)
    std::copy_n(q + r * q_stride + latent.nope_dim, latent.rope_dim, out + r * out_stride + latent.rank);
}

// The latents of these keys, [count, W].
void gather_latents(const KvPages& pages, const BlockTable& sequence, const std::int32_t* keys, std::int64_t count,
                    std::int64_t W, float* out_BW) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t slot = sequence.offset + keys[i];
    const float* page = pages.value_page(0, sequence.pages[slot / KvPages::kSlots]);
    std::copy_n(page + slot % KvPages::kSlots * W, W, out_BW + i * W);
  }
}

}  // namespace

void Attention::project_latent(const float* hidden_TD, const PackedBatch& batch, std::int64_t begin, std::int64_t end,
                               const RopeRows& rope, KvPages& kv_pages, LayerBuffers& buffers, int thread_index,
                               ThreadPool* pool) const {
  const CpuKernels& kernels = cpu_kernels();
  const LatentConfig& latent = *shape_.latent;
  const LatentWeights& up = *weights_.latent;
  const std::int64_t D = shape_.hidden_size, H = shape_.heads, E = shape_.head_dim, rows = end - begin,
                     A = weights_.qkv_proj.out_features(), W = latent.token_width(), half = latent.rope_dim / 2;
  float* scratch = buffers.scratch_of(thread_index);
  const float* input_RD = block_input(weights_.norms, shape_.rms_norm_eps, hidden_TD + begin * D, scratch, rows, D);
  float* short_RA = scratch + rows * D;
  linear_tile(input_RD, D, rows, weights_.qkv_proj, short_RA, A, false, pool, buffers.kind);
  float* q_RQ = buffers.qkv_TQ.data_ptr<float>() + begin * H * E;
  if (latent.query_rank > 0) {
    kernels.rms_norm(short_RA, A, weights_.q_norm.const_data_ptr<float>(), kEps, short_RA, A, rows, latent.query_rank);
    linear_tile(short_RA, A, rows, up.q_up_proj, q_RQ, H * E, false, pool, buffers.kind);
  } else {
    for (std::int64_t r = 0; r < rows; ++r) std::copy_n(short_RA + r * A, H * E, q_RQ + r * H * E);
  }
  float* latent_RW = short_RA + A - W;
  kernels.rms_norm(latent_RW, A, weights_.k_norm.const_data_ptr<float>(), kEps, latent_RW, A, rows, latent.rank);
  float* const keys_RE = short_RA + rows * A;  // of the indexer
  const std::int64_t key_dim = weights_.indexer ? weights_.indexer->config().head_dim : 0;
  if (key_dim > 0) weights_.indexer->project(input_RD, short_RA, A, begin, end, rope, keys_RE, buffers, pool);
  std::int64_t s =
      std::upper_bound(batch.cu_seqlens.begin(), batch.cu_seqlens.end(), begin) - batch.cu_seqlens.begin() - 1;
  for (std::int64_t r = 0; r < rows; ++r) {
    const float *cos = rope.cos[begin + r], *sin = rope.sin[begin + r];
    kernels.rope(latent_RW + r * A + latent.rank, cos, sin, half);
    for (std::int64_t head = 0; head < H; ++head)
      kernels.rope(q_RQ + (r * H + head) * E + latent.nope_dim, cos, sin, half);
    while (batch.cu_seqlens[s + 1] <= begin + r) ++s;
    const std::int64_t position = batch.past(s) + begin + r - batch.cu_seqlens[s];
    kv_pages.write(0, buffers.sequences[s], position, key_dim > 0 ? keys_RE + r * key_dim : nullptr, latent_RW + r * A);
  }
  if (!buffers.latent_THW.defined()) return;
  float* out_RHW = buffers.latent_THW.data_ptr<float>() + begin * H * W;
  on_threads(pool, H, [&](std::int64_t head) {
    absorb(q_RQ + head * E, H * E, rows, up.key_up[static_cast<std::size_t>(head)], latent, out_RHW + head * W, H * W);
  });
}

void Attention::choose_keys(const PackedBatch& batch, const KvPages& pages, LayerBuffers& buffers,
                            ThreadPool& pool) const {
  if (!weights_.indexer || !buffers.chosen_Tk.defined()) return;
  std::vector<AttentionTile> rows;  // the last of a sequence, which take the longest, come first
  for (const AttentionTile& tile : attention_tiles(batch, shape_)) {
    if (shape_.is_sparse_at(tile.position) && tile.head == 0) rows.push_back(tile);
  }
  pool.run(static_cast<std::int64_t>(rows.size()), [&](std::int64_t index, int) {
    const AttentionTile& tile = rows[static_cast<std::size_t>(index)];
    weights_.indexer->choose(tile.row_begin, tile.position, buffers.sequences[static_cast<std::size_t>(tile.sequence)],
                             pages, buffers);
  });
}

void Attention::attend_latent(const AttentionTile& tile, const KvPages& pages, LayerBuffers& buffers,
                              int thread_index) const {
  const CpuKernels& kernels = cpu_kernels();
  const auto& multiply = kernels.multiply[static_cast<int>(WeightFormat::kF32)];
  const LatentConfig& latent = *shape_.latent;
  constexpr std::int64_t kRows = LayerBuffers::kLatentRows, kBlock = LayerBuffers::kLatentBlock;
  const bool single = tile.row_end - tile.row_begin == 1;  // the rows below are then the heads of the tile
  const std::int64_t H = shape_.heads, E = shape_.head_dim, C = latent.rank, W = latent.token_width(),
                     V = latent.value_dim;
  const bool sparse = shape_.is_sparse_at(tile.position);  // `end` then counts the chosen keys
  const std::int32_t* const chosen =
      sparse ? buffers.chosen_Tk.const_data_ptr<std::int32_t>() + tile.row_begin * latent.indexer->top_k : nullptr;
  const std::int64_t tokens = tile.row_end - tile.row_begin, rows = single ? tile.num_heads : tokens,
                     end = sparse ? latent.indexer->top_k : tile.position + tokens;
  const BlockTable& sequence = buffers.sequences[static_cast<std::size_t>(tile.sequence)];
  float* q_RW = buffers.scratch_of(thread_index);
  float* q_WR = q_RW + kRows * W;
  float* scores_BR = q_WR + kRows * W;  // by key
  float* scores_RB = scores_BR + kRows * kBlock;
  float* sum_RC = scores_RB + kRows * kBlock;
  float *maximum = sum_RC + kRows * W, *sum = maximum + kRows, *gathered_BW = sum + kRows;
  const auto rows_of = [&](std::int64_t head) {  // queries of the tile's rows for a head
    return buffers.qkv_TQ.const_data_ptr<float>() + tile.row_begin * H * E + head * E;
  };
  const auto key_up = [&](std::int64_t head) -> const Linear& {
    return weights_.latent->key_up[static_cast<std::size_t>(head)];
  };
  const bool kept = buffers.latent_THW.defined();
  const std::int64_t kept_stride = single ? W : H * W;
  float* const kept_RW = kept ? buffers.latent_THW.data_ptr<float>() + (tile.row_begin * H + tile.head) * W : nullptr;
  if (!kept) {
    for (std::int64_t r = 0; single && r < rows; ++r)
      absorb(rows_of(tile.head + r), E, 1, key_up(tile.head + r), latent, q_RW + r * W, W);
    if (!single) absorb(rows_of(tile.head), H * E, rows, key_up(tile.head), latent, q_RW, W);
  }
  transpose_rows(kept ? kept_RW : q_RW, kept ? kept_stride : W, rows, W, q_WR);
  std::fill(maximum, maximum + rows, -std::numeric_limits<float>::infinity());
  std::fill(sum, sum + rows, 0.0f);
  std::fill(sum_RC, sum_RC + rows * C, 0.0f);
  // Blocks are counted from the first key of the sequence, so that the sums of a row do not depend on its tile.
  for (std::int64_t begin = 0; begin < end; begin += kBlock) {
    const std::int64_t count = std::min(kBlock, end - begin);
    if (sparse) gather_latents(pages, sequence, chosen + begin, count, W, gathered_BW);
    const auto for_parts = [&](const auto& body) {
      if (sparse) return body(gathered_BW, 0, count);
      for_pages(sequence, begin, begin + count, true,
                [&](std::int64_t page, std::int64_t slot, std::int64_t key, std::int64_t keys) {
                  body(pages.value_page(0, page) + slot * W, key - begin, keys);
                });
    };
    for_parts([&](const float* latent_BW, std::int64_t key, std::int64_t keys) {
      multiply({latent_BW, W, keys, q_WR, kRows, W, scores_BR + key * kRows, kRows, rows});
    });
    for (std::int64_t r = 0; r < rows; ++r) {
      float* scores = scores_RB + r * kBlock;
      for (std::int64_t key = 0; key < count; ++key) scores[key] = scores_BR[key * kRows + r];
      const std::int64_t position = tile.position + (single ? 0 : r),
                         visible = sparse ? count : std::clamp<std::int64_t>(position + 1 - begin, 0, count);
      const float correction =
          kernels.softmax_step(scores, count, 0, visible, shape_.attention_scale, maximum + r, sum + r);
      if (correction != 1.0f) kernels.scale(sum_RC + r * C, correction, C);
    }
    for_parts([&](const float* latent_BW, std::int64_t key, std::int64_t keys) {
      multiply({scores_RB + key, kBlock, rows, latent_BW, W, keys, sum_RC, C, C, true});
    });
  }
  for (std::int64_t r = 0; r < rows; ++r) kernels.scale(sum_RC + r * C, 1.0f / sum[r], C);
  if (kept) {
    for (std::int64_t r = 0; r < rows; ++r) std::copy_n(sum_RC + r * C, C, kept_RW + r * kept_stride);
    return;
  }
  float* out = buffers.attention_TA.data_ptr<float>() + (tile.row_begin * H + tile.head) * V;
  const auto value_up = [&](std::int64_t head) -> const Linear& {
    return weights_.latent->value_up[static_cast<std::size_t>(head)];
  };
  for (std::int64_t r = 0; single && r < rows; ++r)
    linear_tile(sum_RC + r * C, C, 1, value_up(tile.head + r), out + r * V, V, false);
  if (!single) linear_tile(sum_RC, C, rows, value_up(tile.head), out, H * V, false);
}

void Attention::expand_values(std::int64_t begin, std::int64_t end, LayerBuffers& buffers, ThreadPool* pool) const {
  const std::int64_t H = shape_.heads, W = shape_.latent->token_width(), V = shape_.latent->value_dim;
  const float* sums_RHW = buffers.latent_THW.const_data_ptr<float>() + begin * H * W;
  float* out_RHV = buffers.attention_TA.data_ptr<float>() + begin * H * V;
  on_threads(pool, H, [&](std::int64_t head) {
    linear_tile(sums_RHW + head * W, H * W, end - begin, weights_.latent->value_up[static_cast<std::size_t>(head)],
                out_RHV + head * V, H * V, false);
  });
}

}  // namespace magister
