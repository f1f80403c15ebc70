// PagePool: who owns which page of a KvCache. Pages are counted, so that sequences with the same beginning share them; a
// full page that nobody uses any more stays findable by its tokens until its place is needed. Sharing is exact: a key is
// the 48 tokens and the identity of everything before them, not a hash of it. Source: the idea of paged attention with
// prefix caching (Kwon et al., arXiv 2309.06180).
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

  // Free pages and those that are only cached.
  std::int64_t num_available() const { return static_cast<std::int64_t>(free_.size() + idle_.size()); }
  std::int64_t num_pages() const { return static_cast<std::int64_t>(pages_.size()); }

  // A page for one owner, or nothing when all are in use.
  std::optional<std::int32_t> allocate();
  void share(std::int32_t page);  // one owner more
  void free(std::int32_t page);   // one owner less

  // The chain of full pages before a page: 0 before the first.
  using PrefixId = std::uint64_t;
  struct Found {
    std::int32_t page = 0;
    PrefixId prefix = 0;
  };
  // The page that holds these 48 tokens after that prefix, with one owner more; nothing when there is none.
  std::optional<Found> find_cached(PrefixId before, std::span<const TokenId> tokens);
  // From now on this page (which its owner fills in this pass at the latest) is found under its tokens. Returns the prefix
  // that it ends; when another page has the same tokens already, that page's.
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
    std::list<std::int32_t>::iterator idle;  // valid while owners == 0 and cached
  };
  static Key key_of(PrefixId before, std::span<const TokenId> tokens);

  std::vector<Page> pages_;
  std::vector<std::int32_t> free_;
  std::list<std::int32_t> idle_;  // cached pages without an owner, the longest unused first
  std::unordered_map<Key, std::int32_t, Hash> by_tokens_;
  PrefixId next_prefix_ = 1;
};

}  // namespace magister
