// Pages of keys and values; see kv_pages.h for the layout.
#include "magister/model/kv_pages.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace magister {

KvPages::KvPages(std::int64_t kv_heads, std::int64_t num_pages, std::int64_t head_dim)
    : num_pages_(num_pages), head_dim_(head_dim) {
  constexpr std::int64_t kBehind = 16;  // what a product may read behind the last page
  const std::int64_t floats = kv_heads * num_pages * page_floats();
  // Zeros: a slot that no token has yet is multiplied before it is masked, and must not be slow (denormal numbers).
  storage_ = at::zeros({2 * floats + 2 * kBehind}, at::TensorOptions().dtype(at::kFloat));
  keys_ = storage_.data_ptr<float>();
  values_ = keys_ + floats + kBehind;
}

void KvPages::write(std::int64_t head, const SequenceSlots& sequence, std::int64_t index, const float* key, const float* value) {
  const std::int64_t slot = sequence.offset + index, page = sequence.pages[slot / kSlots], place = slot % kSlots;
  float* key_column = keys_ + (head * num_pages_ + page) * page_floats() + place;
  for (std::int64_t e = 0; e < head_dim_; ++e) key_column[e * kSlots] = key[e];
  std::copy(value, value + head_dim_, values_ + (head * num_pages_ + page) * page_floats() + place * head_dim_);
}

}  // namespace magister
