// The tiled fast path of a decoder layer: every product is one thread's on a fixed tile, every loop between products
// runs while the tile is in cache. Attention: online softmax over key blocks (Dao et al., arXiv 2205.14135).
#include "model/decoder_layer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "magister/model/cpu_kernels.h"

namespace magister {

LayerBuffers::LayerBuffers(std::int64_t num_tokens, const LayerShape& shape, int num_threads) {
  const auto options = at::TensorOptions().dtype(at::kFloat);
  qkv_TQ = at::empty({num_tokens, shape.qkv_features()}, options);
  attention_TA = at::empty({num_tokens, shape.heads * shape.head_dim}, options);
  const std::int64_t rows = std::min<std::int64_t>(kTileRows, std::max<std::int64_t>(num_tokens, 1));
  const std::int64_t tile = rows * (shape.hidden_size + 3 * shape.mlp);
  const std::int64_t attend = kQueryBlock * (kKeyBlock + shape.head_dim + 2);
  scratch = at::empty({num_threads, std::max(tile, attend)}, options);
}

float* LayerBuffers::scratch_of(int thread_index) {
  return scratch.data_ptr<float>() + thread_index * scratch.size(1);
}

std::vector<AttentionTile> attention_tiles(const PackedBatch& batch, std::int64_t num_heads) {
  std::vector<AttentionTile> tiles;
  for (std::int64_t s = 0; s < batch.num_sequences(); ++s) {
    const std::int64_t begin = batch.cu_seqlens[s], end = batch.cu_seqlens[s + 1];
    for (std::int64_t query = begin; query < end; query += LayerBuffers::kQueryBlock) {
      for (std::int64_t head = 0; head < num_heads; ++head) {
        tiles.push_back({begin, query, std::min(query + LayerBuffers::kQueryBlock, end), head});
      }
    }
  }
  const auto keys = [](const AttentionTile& tile) { return tile.query_end - tile.sequence_begin; };
  std::stable_sort(tiles.begin(), tiles.end(),
                   [&](const AttentionTile& a, const AttentionTile& b) { return keys(a) > keys(b); });
  return tiles;
}

void DecoderLayer::project_qkv(const float* hidden_TD, std::int64_t begin, std::int64_t end, const RopeRows& rope,
                               LayerBuffers& buffers, int thread_index) const {
  const CpuKernels& kernels = cpu_kernels();
  const std::int64_t D = shape_.hidden_size, E = shape_.head_dim, width = shape_.qkv_features(), rows = end - begin;
  float* normed_RD = buffers.scratch_of(thread_index);
  kernels.rms_norm(hidden_TD + begin * D, D, weights_.input_layernorm_D.const_data_ptr<float>(), shape_.rms_norm_eps,
                   normed_RD, D, rows, D);
  float* qkv_RQ = buffers.qkv_TQ.data_ptr<float>() + begin * width;
  linear_tile(normed_RD, D, rows, weights_.qkv_proj, qkv_RQ, width, false);
  const std::int64_t rotated_heads = shape_.heads + shape_.kv_heads;
  for (std::int64_t r = 0; r < rows; ++r) {
    float* row = qkv_RQ + r * width;
    if (weights_.q_norm_E.defined()) {
      kernels.rms_norm(row, E, weights_.q_norm_E.const_data_ptr<float>(), shape_.rms_norm_eps, row, E, shape_.heads, E);
      float* keys = row + shape_.heads * E;
      kernels.rms_norm(keys, E, weights_.k_norm_E.const_data_ptr<float>(), shape_.rms_norm_eps, keys, E,
                       shape_.kv_heads, E);
    }
    for (std::int64_t head = 0; head < rotated_heads; ++head) {
      kernels.rope(row + head * E, rope.cos[begin + r], rope.sin[begin + r], E / 2);
    }
  }
}

void DecoderLayer::attend(const AttentionTile& tile, LayerBuffers& buffers, int thread_index) const {
  const CpuKernels& kernels = cpu_kernels();
  const std::int64_t E = shape_.head_dim, width = shape_.qkv_features(), rows = tile.query_end - tile.query_begin;
  const float* qkv_TQ = buffers.qkv_TQ.const_data_ptr<float>();
  const float* queries = qkv_TQ + tile.query_begin * width + tile.head * E;
  const std::int64_t kv = shape_.kv_of_head[static_cast<std::size_t>(tile.head)];
  const float* keys = qkv_TQ + (shape_.heads + kv) * E;
  const float* values = qkv_TQ + (shape_.heads + shape_.kv_heads + kv) * E;

  float* scores = buffers.scratch_of(thread_index);
  float* output_RE = scores + LayerBuffers::kQueryBlock * LayerBuffers::kKeyBlock;
  float* maximum = output_RE + LayerBuffers::kQueryBlock * E;
  float* sum = maximum + LayerBuffers::kQueryBlock;
  std::fill(maximum, maximum + rows, -std::numeric_limits<float>::infinity());
  std::fill(sum, sum + rows, 0.0f);

  std::int64_t first_key = tile.sequence_begin;
  if (shape_.sliding_window > 0) {
    first_key = std::max(first_key, tile.query_begin - shape_.sliding_window + 1);
  }
  bool first = true;
  for (std::int64_t block = first_key; block < tile.query_end; block += LayerBuffers::kKeyBlock) {
    const std::int64_t block_end = std::min(block + LayerBuffers::kKeyBlock, tile.query_end), count = block_end - block;
    sgemm(true, rows, count, E, 1.0f, queries, width, keys + block * width, width, 0.0f, scores, count);
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t query = tile.query_begin + r;
      const std::int64_t visible_end = std::min(query + 1, block_end) - block;
      std::int64_t visible_begin = 0;
      if (shape_.sliding_window > 0) {
        visible_begin = std::max<std::int64_t>(0, query - shape_.sliding_window + 1 - block);
      }
      const float correction = kernels.softmax_step(scores + r * count, count, visible_begin,
                                                    std::max<std::int64_t>(visible_end, 0), shape_.attention_scale,
                                                    maximum + r, sum + r);
      if (!first && correction != 1.0f) kernels.scale(output_RE + r * E, correction, E);
    }
    sgemm(false, rows, E, count, 1.0f, scores, count, values + block * width, width, first ? 0.0f : 1.0f, output_RE, E);
    first = false;
  }
  float* attention_TA = buffers.attention_TA.data_ptr<float>();
  const std::int64_t out_width = shape_.heads * E;
  for (std::int64_t r = 0; r < rows; ++r) {
    float* to = attention_TA + (tile.query_begin + r) * out_width + tile.head * E;
    const float inverse = 1.0f / sum[r];
    for (std::int64_t e = 0; e < E; ++e) to[e] = output_RE[r * E + e] * inverse;
  }
}

void DecoderLayer::project_output(std::int64_t begin, std::int64_t end, LayerBuffers& buffers, float* out_TD,
                                  bool accumulate) const {
  const std::int64_t width = shape_.heads * shape_.head_dim, D = shape_.hidden_size;
  linear_tile(buffers.attention_TA.const_data_ptr<float>() + begin * width, width, end - begin, weights_.o_proj,
              out_TD + begin * D, D, accumulate);
}

void DecoderLayer::mlp(const float* hidden_TD, std::int64_t begin, std::int64_t end, LayerBuffers& buffers,
                       int thread_index, float* out_TD, bool accumulate) const {
  const CpuKernels& kernels = cpu_kernels();
  const std::int64_t D = shape_.hidden_size, F = shape_.mlp, rows = end - begin;
  float* normed_RD = buffers.scratch_of(thread_index);
  float* gate_up_RF2 = normed_RD + rows * D;
  float* activated_RF = gate_up_RF2 + rows * 2 * F;
  kernels.rms_norm(hidden_TD + begin * D, D, weights_.post_attention_layernorm_D.const_data_ptr<float>(),
                   shape_.rms_norm_eps, normed_RD, D, rows, D);
  linear_tile(normed_RD, D, rows, weights_.gate_up_proj, gate_up_RF2, 2 * F, false);
  kernels.silu_multiply(gate_up_RF2, 2 * F, activated_RF, F, rows, F);
  linear_tile(activated_RF, F, rows, weights_.down_proj, out_TD + begin * D, D, accumulate);
}

}  // namespace magister
