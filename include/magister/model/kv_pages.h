// Keys and values of one layer in pages of 48 slots, one token per slot. A key page is stored transposed, [E, 48], and
// a value page as [48, E], so that both are right-hand sides of the panel product (matmul.h) without a copy.
// Latent attention keeps one vector a token, in value pages; key pages then hold the keys of an indexer, or nothing.
// Legend: K KV heads of this shard, E head_dim, P pages. f32, CPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace magister {

// The slots of a sequence: token j is in slot (offset + j), counted from the start of pages[0]. `pages` is not owned.
struct BlockTable {
  const std::int32_t* pages = nullptr;
  std::int64_t offset = 0;  // in [0, 48)
  std::int64_t place = 0;   // of the sequence's states in DeltaStates, which no other sequence in flight has
};

// Linear attention in one layer keeps this of each text in flight: the states of its value heads, and the last inputs
// of its convolution. A text whose first token is computed begins with zeros. f32, CPU.
struct DeltaStates {
  at::Tensor heads_PHS;   // [places, H, DeltaConfig::state_numbers()]; undefined: the layer has other attention
  at::Tensor inputs_PWC;  // [places, taps - 1, channels]
};

class KvPages {
 public:
  static constexpr std::int64_t kSlots = 48;

  KvPages(std::int64_t kv_heads, std::int64_t num_pages, std::int64_t head_dim)
      : KvPages(kv_heads, num_pages, head_dim, head_dim) {}
  // With latent attention a token has one vector, which is stored as a value; key_dim is that of the indexer's keys.
  KvPages(std::int64_t kv_heads, std::int64_t num_pages, std::int64_t key_dim, std::int64_t value_dim);

  // [E, 48] and [48, E] of one head. A product may read up to 15 floats after the end of a page.
  const float* key_page(std::int64_t head, std::int64_t page) const {
    return keys_ + (head * num_pages_ + page) * key_dim_ * kSlots;
  }
  const float* value_page(std::int64_t head, std::int64_t page) const {
    return values_ + (head * num_pages_ + page) * value_dim_ * kSlots;
  }
  // Stores the vectors of token `index` of the sequence, [E] each. Several threads may write different tokens at the
  // same time. key: nullptr where the layer has no keys.
  void write(std::int64_t head, const BlockTable& sequence, std::int64_t index, const float* key, const float* value);
  // Copies keys and values of all heads from one page to another.
  void copy_page(std::int64_t from, std::int64_t to);

 private:
  std::int64_t kv_heads_, num_pages_, key_dim_, value_dim_;
  std::shared_ptr<float> storage_;
  float *keys_, *values_;
};

// Keys and values of all layers of a shard, kept between two forward passes of generation. Page p has the same owner in
// every layer; the engine decides who owns it.
struct KvCache {
  // Copies page from[i] to page to[i] in every layer; the two must differ. Local; on a GPU the copy is only queued.
  void copy_pages(const std::vector<std::int64_t>& from, const std::vector<std::int64_t>& to);

  std::vector<KvPages> layers;
  std::vector<DeltaStates> states;  // by layer; empty: the model has no linear attention
  std::int64_t num_pages = 0;
  // On a GPU these replace `layers`: one tensor [P + 1, K, 48, E] per layer, in the activations' dtype, or bytes
  // [P + 1, K, 48, E + 1], the records of src/model/gpu/kv_code_kernels.h. The extra last page is never read.
  std::vector<at::Tensor> keys, values;
  // On a GPU: unique number of this cache in the process, for code that has stored its addresses.
  std::uint64_t generation = 0;
};

}  // namespace magister
