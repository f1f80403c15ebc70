// Keys and values of one layer in pages of 48 slots, a slot a token. A key page stands transposed, [E, 48], and a value page
// as it is, [48, E]: both are right-hand sides of the panel product (matmul.h) without any copy.
// Legend: K KV heads of this shard, E head_dim, P pages. f32, CPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace magister {

// Where a sequence's tokens stand: token j in slot (offset + j) of its pages, pages[0] the first. Not owned.
struct BlockTable {
  const std::int32_t* pages = nullptr;
  std::int64_t offset = 0;  // in [0, 48)
};

class KvPages {
 public:
  static constexpr std::int64_t kSlots = 48;

  KvPages(std::int64_t kv_heads, std::int64_t num_pages, std::int64_t head_dim);

  // [E, 48] and [48, E] of one head; up to 15 floats behind a page may be read.
  const float* key_page(std::int64_t head, std::int64_t page) const {
    return keys_ + (head * num_pages_ + page) * page_floats();
  }
  const float* value_page(std::int64_t head, std::int64_t page) const {
    return values_ + (head * num_pages_ + page) * page_floats();
  }
  // Token `index` of the sequence gets these vectors, [E] each. Different tokens may be written at once.
  void write(std::int64_t head, const BlockTable& sequence, std::int64_t index, const float* key, const float* value);
  // Keys and values of all heads from one page to another.
  void copy_page(std::int64_t from, std::int64_t to);

 private:
  std::int64_t page_floats() const { return head_dim_ * kSlots; }

  std::int64_t kv_heads_, num_pages_, head_dim_;
  std::shared_ptr<float> storage_;
  float *keys_, *values_;
};

// The keys and values of all layers of a shard: what generation keeps between two forward passes. Page p of every layer
// belongs together; who owns which page is the engine's business.
struct KvCache {
  // In every layer, page from[i] into page to[i], which differ. Local; on a GPU only queued.
  void copy_pages(const std::vector<std::int64_t>& from, const std::vector<std::int64_t>& to);

  std::vector<KvPages> layers;
  std::int64_t num_pages = 0;
  // On a GPU instead of `layers`: by layer [P + 1, K, 48, E], in the activations' type; nobody reads the last page.
  std::vector<at::Tensor> keys, values;
  std::uint64_t generation = 0;  // on a GPU: of this cache alone in the process, for what remembers where it stands
};

}  // namespace magister
