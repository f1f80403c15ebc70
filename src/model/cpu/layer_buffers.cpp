// Sizes of the work buffers, and where the sequences of a batch begin in its pages.
#include "model/cpu/layer_buffers.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

namespace magister {
namespace {

// A sequence of a page or more begins a page, so that its products run over whole pages; shorter ones share pages.
std::vector<std::int64_t> first_slots(const PackedBatch& batch) {
  std::vector<std::int64_t> slots;
  std::int64_t next = 0;
  for (std::int64_t s = 0; s < batch.num_sequences(); ++s) {
    const std::int64_t length = batch.cu_seqlens[s + 1] - batch.cu_seqlens[s];
    if (length >= KvPages::kSlots) next = (next + KvPages::kSlots - 1) / KvPages::kSlots * KvPages::kSlots;
    slots.push_back(next);
    next += length;
  }
  slots.push_back(next);
  return slots;
}

}  // namespace

BatchPages::BatchPages(const PackedBatch& batch) {
  const std::vector<std::int64_t> slots = first_slots(batch);
  pages.resize(static_cast<std::size_t>(slots.back() / KvPages::kSlots + 1));
  std::iota(pages.begin(), pages.end(), 0);
  for (std::int64_t s = 0; s < batch.num_sequences(); ++s) {
    sequences.push_back({pages.data() + slots[s] / KvPages::kSlots, slots[s] % KvPages::kSlots});
  }
}

LayerBuffers::LayerBuffers(const PackedBatch& batch, std::vector<BlockTable> slots, const LayerShape& shape,
                           int num_threads)
    : sequences(std::move(slots)) {
  const auto options = at::TensorOptions().dtype(at::kFloat);
  const std::int64_t num_tokens = batch.num_tokens();
  qkv_TQ = at::empty({num_tokens, shape.qkv_features()}, options);
  if (shape.all_heads > 0) squares_T2 = at::empty({num_tokens, 2}, options);
  attention_TA = at::empty({num_tokens, shape.heads * shape.head_dim}, options);
  const std::int64_t rows = std::min<std::int64_t>(kTileRows, std::max<std::int64_t>(num_tokens, 1));
  const std::int64_t width = std::max({shape.mlp, shape.expert_mlp, shape.num_experts});
  const std::int64_t tile = rows * (shape.hidden_size + 3 * width);
  const std::int64_t attend = std::max(kQueryBlock, shape.heads) * (kKeyBlock + shape.head_dim + 2);
  gathered_offset_ = std::max(tile, attend);
  const std::int64_t gathered = shape.num_experts > 0 ? rows * shape.hidden_size : 0;
  scratch = at::empty({num_threads, gathered_offset_ + gathered}, options);
  if (shape.num_experts == 0) return;
  experts_Tk = at::empty({num_tokens, shape.experts_per_token}, options.dtype(at::kInt));
  expert_weights_Tk = at::empty({num_tokens, shape.experts_per_token}, options);
  expert_rows_ND = at::empty({num_tokens * shape.experts_per_token, shape.hidden_size}, options);
}

float* LayerBuffers::gathered_of(int thread_index) { return scratch_of(thread_index) + gathered_offset_; }

float* LayerBuffers::scratch_of(int thread_index) { return scratch.data_ptr<float>() + thread_index * scratch.size(1); }

}  // namespace magister
