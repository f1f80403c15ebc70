// Counted pages and the map of cached ones. A prefix id is never reused: when a page is reused, the pages after it can
// no longer be found, and are reused in their turn.
#include "magister/engine/page_pool.h"

#include <algorithm>

#include "magister/core/error.h"

namespace magister {

PagePool::PagePool(std::int64_t num_pages) : pages_(static_cast<std::size_t>(num_pages)) {
  for (std::int64_t page = num_pages; page-- > 0;) free_.push_back(static_cast<std::int32_t>(page));
}

std::size_t PagePool::Hash::operator()(const Key& key) const noexcept {
  std::uint64_t hash = key.before * 0x9e3779b97f4a7c15ull;
  for (const TokenId token : key.tokens) hash = (hash ^ static_cast<std::uint64_t>(token)) * 0x100000001b3ull;
  return hash ^ (hash >> 29);
}

PagePool::Key PagePool::key_of(PrefixId before, std::span<const TokenId> tokens) {
  MAGISTER_ASSERT(tokens.size() == KvPages::kSlots);
  Key key{before, {}};
  std::copy(tokens.begin(), tokens.end(), key.tokens.begin());
  return key;
}

std::optional<std::int32_t> PagePool::allocate() {
  std::int32_t page = -1;
  if (!free_.empty()) {
    page = free_.back();
    free_.pop_back();
  } else if (!idle_.empty()) {
    page = idle_.front();
    idle_.pop_front();
    Page& evicted = pages_[static_cast<std::size_t>(page)];
    by_tokens_.erase(evicted.key);
    evicted.prefix = 0;
  } else {
    return std::nullopt;
  }
  pages_[static_cast<std::size_t>(page)].owners = 1;
  return page;
}

void PagePool::share(std::int32_t page) {
  Page& shared = pages_[static_cast<std::size_t>(page)];
  if (shared.owners++ == 0) idle_.erase(shared.idle);
}

void PagePool::free(std::int32_t page) {
  Page& freed = pages_[static_cast<std::size_t>(page)];
  MAGISTER_ASSERT(freed.owners > 0);
  if (--freed.owners > 0) return;
  if (freed.prefix == 0) {
    free_.push_back(page);
  } else {
    freed.idle = idle_.insert(idle_.end(), page);
  }
}

std::optional<PagePool::Found> PagePool::find_cached(PrefixId before, std::span<const TokenId> tokens) {
  const auto found = by_tokens_.find(key_of(before, tokens));
  if (found == by_tokens_.end()) return std::nullopt;
  share(found->second);
  return Found{found->second, pages_[static_cast<std::size_t>(found->second)].prefix};
}

PagePool::PrefixId PagePool::cache(std::int32_t page, PrefixId before, std::span<const TokenId> tokens) {
  const Key key = key_of(before, tokens);
  const auto [at, is_new] = by_tokens_.try_emplace(key, page);
  if (!is_new) return pages_[static_cast<std::size_t>(at->second)].prefix;
  Page& cached = pages_[static_cast<std::size_t>(page)];
  MAGISTER_ASSERT(cached.prefix == 0 && cached.owners > 0);
  cached.key = key;
  cached.prefix = next_prefix_++;
  return cached.prefix;
}

}  // namespace magister
