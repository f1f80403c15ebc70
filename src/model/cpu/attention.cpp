// The tiled fast path of attention. Each product runs on one thread on a fixed tile, and the loops between products run
// while the tile is in cache. Online softmax over key blocks (Dao et al., arXiv 2205.14135).
#include "model/cpu/attention.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "magister/model/cpu/cpu_kernels.h"
#include "model/cpu/block_norms.h"
#include "model/cpu/page_runs.h"

namespace magister {

namespace {

// The order of the additions is the same for every batch.
float sum_of_squares(const float* numbers, std::int64_t count) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += static_cast<double>(numbers[i]) * numbers[i];
  return static_cast<float>(sum);
}

}  // namespace

std::vector<AttentionTile> attention_tiles(const PackedBatch& batch, const LayerShape& shape,
                                           const std::vector<std::int64_t>* read_rows) {
  std::vector<AttentionTile> tiles;
  for (std::int64_t s = 0; s < batch.num_sequences(); ++s) {
    const std::int64_t begin = batch.cu_seqlens[s], end = batch.cu_seqlens[s + 1], past = batch.past(s);
    for (std::int64_t row = begin, next = begin; row < end; row = next) {
      const bool sparse = shape.is_sparse_at(past + row - begin);
      next = sparse ? row + 1 : std::min(row + LayerBuffers::kQueryBlock, end);
      while (!sparse && shape.is_sparse_at(past + next - 1 - begin)) --next;
      std::int64_t first = row, last = next - 1;
      if (read_rows != nullptr) {
        const auto from = std::lower_bound(read_rows->begin(), read_rows->end(), row),
                   to = std::lower_bound(from, read_rows->end(), next);
        if (from == to) continue;
        first = *from;
        last = *std::prev(to);
      }
      const bool single = first == last;
      for (std::int64_t head = 0; head < shape.heads;) {
        std::int64_t heads = 1;
        while (single && head + heads < shape.heads && shape.kv_of_head[head + heads] == shape.kv_of_head[head] &&
               (!shape.latent || heads < LayerBuffers::kLatentRows))
          ++heads;
        tiles.push_back({first, last + 1, past + first - begin, s, head, heads});
        head += heads;
      }
    }
  }
  std::stable_sort(tiles.begin(), tiles.end(),
                   [](const AttentionTile& a, const AttentionTile& b) { return a.position > b.position; });
  return tiles;
}

void Attention::project_qkv(const float* hidden_TD, const PackedBatch& batch, std::int64_t begin, std::int64_t end,
                            const RopeRows& rope, KvPages& kv_pages, LayerBuffers& buffers, int thread_index,
                            ThreadPool* pool) const {
  if (weights_.latent) return project_latent(hidden_TD, batch, begin, end, rope, kv_pages, buffers, thread_index, pool);
  const std::int64_t D = shape_.hidden_size, E = shape_.head_dim, width = shape_.qkv_features(), rows = end - begin;
  const float* input_RD = block_input(weights_.norms, shape_.rms_norm_eps, hidden_TD + begin * D,
                                      buffers.scratch_of(thread_index), rows, D);
  float* qkv_RQ = buffers.qkv_TQ.data_ptr<float>() + begin * width;
  linear_tile(input_RD, D, rows, weights_.qkv_proj, qkv_RQ, width, false, pool, buffers.kind);
  if (const std::int64_t gate = shape_.gate_numbers; gate > 0)
    linear_tile(input_RD, D, rows, weights_.gate, buffers.gate_TG.data_ptr<float>() + begin * gate, gate, false, pool,
                buffers.kind);
  if (weights_.delta) return project_delta(input_RD, begin, end, buffers, pool);
  if (shape_.all_heads == 0) return place_heads(batch, begin, end, rope, kv_pages, buffers);
  const std::int64_t first_key = (shape_.heads + shape_.first_counted_kv) * E,
                     keys_end = (shape_.heads + shape_.kv_heads) * E;
  float* squares = buffers.squares_T2.data_ptr<float>() + 2 * begin;
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* row = qkv_RQ + r * width;
    squares[2 * r] = sum_of_squares(row, shape_.heads * E);
    squares[2 * r + 1] = sum_of_squares(row + first_key, keys_end - first_key);
  }
}

void Attention::norm_heads(float* row, float* keys, const float* squares) const {
  const std::int64_t E = shape_.head_dim, q = weights_.q_norm.numel(), k = weights_.k_norm.numel();
  if (weights_.q_norm_bias.defined()) {
    const BlockNorms of_q{weights_.q_norm, {}, true, weights_.q_norm_bias},
        of_k{weights_.k_norm, {}, true, weights_.k_norm_bias};
    block_input(of_q, shape_.rms_norm_eps, row, row, shape_.heads, E);
    block_input(of_k, shape_.rms_norm_eps, keys, keys, shape_.kv_heads, E);
    return;
  }
  const float *q_norm = weights_.q_norm.const_data_ptr<float>(),
              *k_norm = k > 0 ? weights_.k_norm.const_data_ptr<float>() : nullptr;
  if (squares == nullptr) {
    // Norms over each head, or over all heads together if the weight is as wide as all of them.
    const CpuKernels& kernels = cpu_kernels();
    kernels.rms_norm(row, q, q_norm, shape_.rms_norm_eps, row, q, shape_.heads * E / q, q);
    if (k > 0) kernels.rms_norm(keys, k, k_norm, shape_.rms_norm_eps, keys, k, shape_.kv_heads * E / k, k);
    return;
  }
  const auto scale = [&](float* numbers, const float* weight, std::int64_t count, float sum, std::int64_t heads) {
    const float factor = 1.0f / std::sqrt(sum / static_cast<float>(heads * E) + shape_.rms_norm_eps);
    for (std::int64_t i = 0; i < count; ++i) numbers[i] = weight[i] * (numbers[i] * factor);
  };
  scale(row, q_norm, q, squares[0], shape_.all_heads);
  scale(keys, k_norm, k, squares[1], shape_.all_kv_heads);
}

void Attention::place_heads(const PackedBatch& batch, std::int64_t begin, std::int64_t end, const RopeRows& rope,
                            KvPages& kv_pages, LayerBuffers& buffers) const {
  const CpuKernels& kernels = cpu_kernels();
  const std::int64_t E = shape_.head_dim, V = shape_.value_dim(), width = shape_.qkv_features(), rows = end - begin,
                     own = shape_.own_kv_heads();
  float* qkv_RQ = buffers.qkv_TQ.data_ptr<float>() + begin * width;
  const float* squares = shape_.all_heads > 0 ? buffers.squares_T2.const_data_ptr<float>() + 2 * begin : nullptr;
  std::int64_t s =
      std::upper_bound(batch.cu_seqlens.begin(), batch.cu_seqlens.end(), begin) - batch.cu_seqlens.begin() - 1;
  for (std::int64_t r = 0; r < rows; ++r) {
    float* row = qkv_RQ + r * width;
    float *keys = row + shape_.heads * E, *values = keys + own * E;
    if (shape_.keys_are_values) std::copy(keys, values, values);
    const auto norm = [&] {
      if (weights_.q_norm.defined()) norm_heads(row, keys, squares == nullptr ? nullptr : squares + 2 * r);
    };
    if (!shape_.qk_norm_after_rope) norm();
    if (shape_.clip_qkv > 0) {
      for (std::int64_t i = 0; i < width; ++i) row[i] = std::clamp(row[i], -shape_.clip_qkv, shape_.clip_qkv);
    }
    if (weights_.v_norm.defined())
      kernels.rms_norm(values, V, weights_.v_norm.const_data_ptr<float>(), shape_.rms_norm_eps, values, V, own, V);
    if (shape_.value_scale != 1.0f) kernels.scale(values, shape_.value_scale, own * V);
    for (std::int64_t head = 0; head < shape_.heads + own; ++head) {
      kernels.rope(row + head * E, rope.cos[begin + r], rope.sin[begin + r], shape_.rotary_dim / 2);
    }
    if (shape_.qk_norm_after_rope) norm();
    while (batch.cu_seqlens[s + 1] <= begin + r) ++s;
    const std::int64_t position = batch.past(s) + begin + r - batch.cu_seqlens[s];
    if (shape_.query_scale_beta > 0) kernels.scale(row, query_scale(shape_, position), shape_.heads * E);
    for (std::int64_t kv = 0; kv < own; ++kv) {
      kv_pages.write(kv, buffers.sequences[s], position, keys + kv * E, values + kv * V);
    }
  }
}

void Attention::add_alibi(std::int64_t head, std::int64_t query, std::int64_t first_key, float* scores,
                          std::int64_t count, float scale) const {
  if (shape_.alibi_in_bf16) {
    for (std::int64_t i = 0; i < count; ++i)
      scores[i] = scores[i] * scale + alibi_term(shape_, head, first_key + i, query);
    return;
  }
  const float slope = shape_.alibi_slopes[static_cast<std::size_t>(head)];
  for (std::int64_t i = 0; i < count; ++i)
    scores[i] = scores[i] * scale + slope * static_cast<float>(first_key + i - query);
}

void Attention::attend(const AttentionTile& tile, const KvPages& pages, LayerBuffers& buffers, int thread_index) const {
  if (weights_.latent) return attend_latent(tile, pages, buffers, thread_index);
  const CpuKernels& kernels = cpu_kernels();
  const auto& multiply = kernels.multiply[static_cast<int>(WeightFormat::kF32)];
  const bool single = tile.row_end - tile.row_begin == 1;  // the rows below are then the heads of the tile
  const std::int64_t E = shape_.head_dim, V = shape_.value_dim(), width = shape_.qkv_features();
  const std::int64_t rows = single ? tile.num_heads : tile.row_end - tile.row_begin, stride = single ? E : width;
  const std::int64_t kv = shape_.kv_of_head[static_cast<std::size_t>(tile.head)];
  const std::int64_t end = tile.position + (tile.row_end - tile.row_begin);
  const BlockTable& sequence = buffers.sequences[static_cast<std::size_t>(tile.sequence)];
  const float* queries = buffers.qkv_TQ.const_data_ptr<float>() + tile.row_begin * width + tile.head * E;
  constexpr std::int64_t kBlock = LayerBuffers::kKeyBlock;
  const std::int64_t most_rows = std::max(LayerBuffers::kQueryBlock, shape_.heads);

  float* scores = buffers.scratch_of(thread_index);
  float* output_RV = scores + most_rows * kBlock;
  float* maximum = output_RV + most_rows * V;
  float* sum = maximum + most_rows;
  if (weights_.sinks.defined()) {  // the first score of every row is its sink, with weight exp(0)
    const float* sinks = weights_.sinks.const_data_ptr<float>() + tile.head;
    for (std::int64_t r = 0; r < rows; ++r) maximum[r] = sinks[single ? r : 0];
    std::fill(sum, sum + rows, 1.0f);
  } else {
    std::fill(maximum, maximum + rows, -std::numeric_limits<float>::infinity());
    std::fill(sum, sum + rows, 0.0f);
  }
  std::fill(output_RV, output_RV + rows * V, 0.0f);

  // Blocks are counted from the first key of the sequence, so that the sums of a row do not depend on its tile.
  const std::int64_t first_key = first_visible_key(shape_, tile.position);
  for (std::int64_t block = first_key / kBlock * kBlock; block < end; block += kBlock) {
    const std::int64_t begin = std::max(block, first_key), stop = std::min(block + kBlock, end), count = stop - begin;
    for_pages(sequence, begin, stop, false,
              [&](std::int64_t page, std::int64_t slot, std::int64_t key, std::int64_t keys) {
                multiply({queries, stride, rows, pages.key_page(kv, page) + slot, KvPages::kSlots, E,
                          scores + key - begin, kBlock, keys});
              });
    float scale = shape_.attention_scale;
    if (shape_.attention_softcap > 0) {
      for (std::int64_t r = 0; r < rows; ++r)
        kernels.softcap(scores + r * kBlock, count, scale, shape_.attention_softcap);
      scale = 1.0f;
    }
    if (!shape_.alibi_slopes.empty()) {
      for (std::int64_t r = 0; r < rows; ++r)
        add_alibi(tile.head + (single ? r : 0), tile.position + (single ? 0 : r), begin, scores + r * kBlock, count,
                  scale);
      scale = 1.0f;
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t position = tile.position + (single ? 0 : r),
                         visible = std::clamp<std::int64_t>(position + 1 - begin, 0, count);
      const std::int64_t hidden = std::max<std::int64_t>(0, first_visible_key(shape_, position) - begin);
      const float correction =
          kernels.softmax_step(scores + r * kBlock, count, hidden, visible, scale, maximum + r, sum + r);
      if (correction != 1.0f) kernels.scale(output_RV + r * V, correction, V);
    }
    for_pages(sequence, begin, stop, true,
              [&](std::int64_t page, std::int64_t slot, std::int64_t key, std::int64_t keys) {
                multiply({scores + key - begin, kBlock, rows, pages.value_page(kv, page) + slot * V, V, keys, output_RV,
                          V, V, true});
              });
  }
  const std::int64_t out_width = shape_.heads * V, out_stride = single ? V : out_width;
  float* out = buffers.attention_TA.data_ptr<float>() + tile.row_begin * out_width + tile.head * V;
  for (std::int64_t r = 0; r < rows; ++r) {
    const float inverse = 1.0f / sum[r];
    for (std::int64_t v = 0; v < V; ++v) out[r * out_stride + v] = output_RV[r * V + v] * inverse;
  }
}

void Attention::apply_gate(std::int64_t begin, std::int64_t end, LayerBuffers& buffers) const {
  const std::int64_t width = shape_.heads * shape_.value_dim(), each = width / shape_.gate_numbers;
  const float* gate = buffers.gate_TG.const_data_ptr<float>() + begin * shape_.gate_numbers;
  float* out = buffers.attention_TA.data_ptr<float>() + begin * width;
  const bool sigmoid = shape_.gate == AttentionGate::kSigmoid;
  for (std::int64_t i = 0; i < (end - begin) * shape_.gate_numbers; ++i) {
    const float x = gate[i];
    const float factor =
        sigmoid ? 1.0f / (1.0f + std::exp(-x)) : std::max(x, 0.0f) + std::log1p(std::exp(-std::abs(x)));
    for (std::int64_t v = 0; v < each; ++v) out[i * each + v] *= factor;
  }
}

void Attention::project_output(std::int64_t begin, std::int64_t end, LayerBuffers& buffers, float* out_TD,
                               bool accumulate, ThreadPool* pool) const {
  const std::int64_t width = shape_.heads * shape_.value_dim(), D = shape_.hidden_size;
  if (buffers.latent_THW.defined()) expand_values(begin, end, buffers, pool);
  if (weights_.delta) {
    finish_delta(begin, end, buffers);
  } else if (shape_.gate_numbers > 0) {
    apply_gate(begin, end, buffers);
  }
  linear_tile(buffers.attention_TA.const_data_ptr<float>() + begin * width, width, end - begin, weights_.o_proj,
              out_TD + begin * D, D, accumulate, pool, buffers.kind);
}

}  // namespace magister
