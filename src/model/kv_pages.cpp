// Pages of keys and values; kv_pages.h describes the layout.
#include "magister/model/kv_pages.h"

#include <ATen/ATen.h>
#include <sys/mman.h>

#include <algorithm>

#include "magister/core/error.h"
#include "magister/device/upload.h"

namespace magister {

KvPages::KvPages(std::int64_t kv_heads, std::int64_t num_pages, std::int64_t key_dim, std::int64_t value_dim)
    : kv_heads_(kv_heads), num_pages_(num_pages), key_dim_(key_dim), value_dim_(value_dim) {
  constexpr std::int64_t kPadding = 16;  // a product may read this many floats after the last page
  const std::int64_t slots = kv_heads * num_pages * kSlots;
  // The memory must be zero: slots without a token are multiplied before they are masked, and denormal numbers would be
  // slow. The system provides zeros when a page is first touched, so a cache for many texts costs only the memory that
  // the texts in flight use.
  const auto bytes = static_cast<std::size_t>(slots * (key_dim + value_dim) + 2 * kPadding) * sizeof(float);
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  MAGISTER_CHECK(memory != MAP_FAILED, ExitCode::kConfig,
                 "a KV cache of {} bytes cannot be allocated (the system has no more memory); use fewer ranks on this "
                 "host or a smaller max_sequences",
                 bytes);
  storage_ = std::shared_ptr<float>(static_cast<float*>(memory), [bytes](float* at) { ::munmap(at, bytes); });
  keys_ = storage_.get();
  values_ = keys_ + slots * key_dim + kPadding;
}

void KvPages::write(std::int64_t head, const BlockTable& sequence, std::int64_t index, const float* key,
                    const float* value) {
  const std::int64_t slot = sequence.offset + index, page = sequence.pages[slot / kSlots], place = slot % kSlots;
  float* key_column = keys_ + (head * num_pages_ + page) * key_dim_ * kSlots + place;
  for (std::int64_t e = 0; key != nullptr && e < key_dim_; ++e) key_column[e * kSlots] = key[e];
  std::copy(value, value + value_dim_, values_ + ((head * num_pages_ + page) * kSlots + place) * value_dim_);
}

void KvPages::copy_page(std::int64_t from, std::int64_t to) {
  for (std::int64_t head = 0; head < kv_heads_; ++head) {
    std::copy_n(key_page(head, from), key_dim_ * kSlots, keys_ + (head * num_pages_ + to) * key_dim_ * kSlots);
    std::copy_n(value_page(head, from), value_dim_ * kSlots, values_ + (head * num_pages_ + to) * value_dim_ * kSlots);
  }
}

void KvCache::copy_pages(const std::vector<std::int64_t>& from, const std::vector<std::int64_t>& to) {
  for (KvPages& layer : layers) {
    for (std::size_t i = 0; i < from.size(); ++i) layer.copy_page(from[i], to[i]);
  }
  if (keys.empty() || from.empty()) return;
  const at::Device device = keys.front().device();
  const at::Tensor source = upload(at::tensor(from, at::kLong), device),
                   target = upload(at::tensor(to, at::kLong), device);
  for (std::vector<at::Tensor>* all : {&keys, &values}) {
    for (at::Tensor& layer : *all) {
      if (layer.defined()) layer.index_copy_(0, target, layer.index_select(0, source));
    }
  }
}

}  // namespace magister
