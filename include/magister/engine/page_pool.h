// PagePool: ownership of the pages of a KvCache. Pages have a count of owners, so that sequences with the same
// beginning share them. A full page without owners can still be found by its tokens until the page is reused. Sharing
// is exact: a key is the 48 tokens and the identity of everything before them, not a hash of it. Source: paged
// attention with prefix caching (Kwon et al., arXiv 2309.06180).
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "magister/core/types.h"
#include "magister/model/kv_pages.h"

namespace magister {

class PagePool {
 public:
  explicit PagePool(std::int64_t num_pages);

  // Free pages and cached pages without owners.
  std::int64_t num_available() const { return static_cast<std::int64_t>(free_.size() + idle_.size()); }
  std::int64_t num_pages() const { return static_cast<std::int64_t>(pages_.size()); }

  // Takes a page for one owner; std::nullopt if all are in use.
  std::optional<std::int32_t> allocate();
  void share(std::int32_t page);  // adds an owner
  void free(std::int32_t page);   // removes an owner

  // Identifies the chain of full pages before a page; 0: no page before.
  using PrefixId = std::uint64_t;
  struct Found {
    std::int32_t page = 0;
    PrefixId prefix = 0;
  };
  // Finds the page with these 48 tokens after that prefix and adds an owner; std::nullopt if there is none.
  std::optional<Found> find_cached(PrefixId before, std::span<const TokenId> tokens);
  // From now on this page is found by its tokens; its owner must fill it in this pass at the latest. Returns the prefix
  // that ends with this page. If another page already has these tokens, returns that page's prefix.
  PrefixId cache(std::int32_t page, PrefixId before, std::span<const TokenId> tokens);

 private:
  struct Key {
    PrefixId before = 0;
    std::array<TokenId, KvPages::kSlots> tokens{};
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const noexcept;
  };
  struct Page {
    std::int32_t owners = 0;
    PrefixId prefix = 0;  // 0: not cached
    Key key;
    std::list<std::int32_t>::iterator idle;  // valid if owners == 0 and the page is cached
  };
  static Key key_of(PrefixId before, std::span<const TokenId> tokens);

  std::vector<Page> pages_;
  std::vector<std::int32_t> free_;
  std::list<std::int32_t> idle_;  // cached pages without owners, least recently used first
  std::unordered_map<Key, std::int32_t, Hash> by_tokens_;
  PrefixId next_prefix_ = 1;
};

}  // namespace magister
