// Sizes of the work buffers, and the slots at which the sequences of a batch begin.
#include "model/cpu/layer_buffers.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "model/cpu/row_kinds.h"

namespace magister {
namespace {

constexpr std::int64_t kSlots = KvPages::kSlots;

std::int64_t page_border(std::int64_t slot) { return (slot + kSlots - 1) / kSlots * kSlots; }

// For each sequence the number of its first tokens that others share; 0: none do.
std::vector<std::int64_t> shared_prefixes(const PackedBatch& batch) {
  std::vector<std::int64_t> shared_S(static_cast<std::size_t>(batch.num_sequences()), 0);
  for (std::size_t s = 0; s < batch.prefix_of_S.size(); ++s) {
    if (batch.past_S[s] > 0) shared_S[static_cast<std::size_t>(batch.prefix_of_S[s])] = batch.past_S[s];
  }
  return shared_S;
}

// The slot at which the rows of each sequence begin, and the end of the last one. A sequence of at least a page begins
// at a page border, so that its products run over whole pages; shorter ones share pages. A shared prefix ends at a page
// border, and the rows that continue it elsewhere begin at one.
std::vector<std::int64_t> first_slots(const PackedBatch& batch) {
  const std::vector<std::int64_t> shared_S = shared_prefixes(batch);
  std::vector<std::int64_t> slots;
  std::int64_t next = 0;
  for (std::int64_t s = 0; s < batch.num_sequences(); ++s) {
    const std::int64_t length = batch.cu_seqlens[s + 1] - batch.cu_seqlens[s], shared = shared_S[s];
    if (length >= kSlots || shared > 0 || batch.past(s) > 0) next = page_border(next);
    next += page_border(shared) - shared;
    slots.push_back(next);
    next += length;
  }
  slots.push_back(next);
  return slots;
}

}  // namespace

std::int64_t delta_scratch(const LayerShape& shape) {
  if (!shape.delta) return 0;
  const std::int64_t a_row = 2 * shape.head_dim + shape.value_dim() + 2;
  return LayerBuffers::kDeltaRows * a_row + shape.qkv_features() +
         shape.delta->heads_a_key() * shape.delta->state_numbers();
}

KvPages pages_for(const LayerShape& shape, std::int64_t num_pages) {
  if (shape.delta) return {0, num_pages, 0, 0};  // its states are DeltaStates
  if (shape.latent)
    return {1, num_pages, shape.has_indexer ? shape.latent->indexer->head_dim : 0, shape.latent->token_width()};
  return {shape.kv_heads, num_pages, shape.head_dim, shape.value_dim()};
}

DeltaStates states_for(const LayerShape& shape, std::int64_t num_texts) {
  if (!shape.delta) return {};
  const auto options = at::TensorOptions().dtype(at::kFloat);  // memory is used when a text first writes it
  return {at::empty({num_texts, shape.heads, shape.delta->state_numbers()}, options),
          at::empty({num_texts, shape.delta->taps - 1, shape.qkv_features()}, options)};
}

BatchPages::BatchPages(const PackedBatch& batch) {
  const std::vector<std::int64_t> slots = first_slots(batch);
  pages.resize(static_cast<std::size_t>(slots.back() / kSlots + 1));
  std::iota(pages.begin(), pages.end(), 0);
  for (std::int64_t s = 0; s < batch.num_sequences(); ++s) {
    const std::int64_t past = batch.past(s);
    if (past == 0) {
      sequences.push_back({pages.data() + slots[s] / kSlots, slots[s] % kSlots});
      continue;
    }
    const BlockTable& prefix = sequences[static_cast<std::size_t>(batch.prefix_of_S[s])];
    std::vector<std::int32_t>& table =
        joined_.emplace_back(prefix.pages, prefix.pages + (prefix.offset + past) / kSlots);
    table.insert(table.end(), pages.begin() + slots[s] / kSlots,
                 pages.begin() + page_border(slots[s] + batch.cu_seqlens[s + 1] - batch.cu_seqlens[s]) / kSlots);
    sequences.push_back({table.data(), prefix.offset});
  }
}

LayerBuffers::LayerBuffers(const PackedBatch& batch, std::vector<BlockTable> slots, const LayerShape& shape,
                           int num_threads, std::span<const LayerShape> others)
    : sequences(std::move(slots)), kind(kind_of_rows(batch)) {
  const auto options = at::TensorOptions().dtype(at::kFloat);
  const std::int64_t num_tokens = batch.num_tokens();
  const auto most = [&](const auto& number) {
    std::int64_t largest = number(shape);
    for (const LayerShape& other : others) largest = std::max<std::int64_t>(largest, number(other));
    return largest;
  };
  const std::int64_t value_dim = most([](const LayerShape& of) { return of.value_dim(); }),
                     outputs = most([](const LayerShape& of) { return of.heads * of.value_dim(); });
  qkv_TQ = at::empty({num_tokens, most([](const LayerShape& of) { return of.qkv_features(); })}, options);
  if (shape.all_heads > 0) squares_T2 = at::empty({num_tokens, 2}, options);
  attention_TA = at::empty({num_tokens, outputs}, options);
  const std::int64_t steps = most([](const LayerShape& of) { return of.delta ? 2 * of.heads : 0; });
  if (steps > 0) steps_TS = at::empty({num_tokens, steps}, options);
  const std::int64_t gates = most([](const LayerShape& of) { return of.gate_numbers; });
  if (gates > 0) gate_TG = at::empty({num_tokens, gates}, options);
  const std::int64_t rows = std::min<std::int64_t>(kTileRows, std::max<std::int64_t>(num_tokens, 1));
  const std::int64_t width = std::max({most([](const LayerShape& of) { return of.mlp; }), shape.expert_mlp,
                                       shape.shared_mlp, shape.num_experts, shape.widest_other});
  std::int64_t tile = rows * (shape.hidden_size + 3 * width);
  const std::int64_t heads = most([](const LayerShape& of) { return of.heads; });
  std::int64_t attend = std::max(std::max(kQueryBlock, heads) * (kKeyBlock + value_dim + 2), most(delta_scratch));
  if (const auto& latent = shape.latent) {
    const std::int64_t W = latent->token_width(),
                       queries = latent->query_rank > 0 ? latent->query_rank : shape.heads * shape.head_dim;
    bool is_sparse = false;
    for (std::int64_t s = 0; s < batch.num_sequences(); ++s)
      is_sparse |= shape.is_sparse_at(batch.past(s) + batch.cu_seqlens[s + 1] - batch.cu_seqlens[s] - 1);
    if (is_sparse || num_tokens == batch.num_sequences()) latent_THW = at::empty({num_tokens, shape.heads, W}, options);
    attend = kLatentRows * (3 * W + 2 * kLatentBlock + 2);
    std::int64_t key = 0;
    if (const auto& indexer = latent->indexer) {
      key = indexer->head_dim;
      attend += kLatentBlock * W;
      if (is_sparse) {
        chosen_Tk = at::empty({num_tokens, indexer->top_k}, options.dtype(at::kInt));
        index_queries_TQ = at::empty({num_tokens, indexer->heads * indexer->head_dim}, options);
        index_weights_TI = at::empty({num_tokens, indexer->heads}, options);
      }
    }
    tile = std::max(tile, rows * (shape.hidden_size + queries + W + key));
  }
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
