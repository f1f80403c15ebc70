// Short pieces by repeated scans (they are a few symbols long and stay in registers), long ones with a heap over a
// linked list; a small cache a thread for the words that come again.
#include "text/merge_table.h"

#include <algorithm>
#include <atomic>
#include <queue>

namespace magister {
namespace {

constexpr std::uint64_t kEmpty = ~0ull;
constexpr std::size_t kShortSymbols = 24;  // n * n / 2 look-ups below a heap's cost
constexpr std::size_t kCachedPieceBytes = 32;
constexpr std::size_t kCacheEntries = 1 << 15;  // a few MB a thread

std::uint64_t key_of(TokenId left, TokenId right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
}
std::uint64_t mix(std::uint64_t key) {
  key *= 0x9E3779B97F4A7C15ull;
  return key ^ key >> 29;
}

struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
struct ThreadCache {
  std::uint64_t serial = 0;
  std::unordered_map<std::string, std::vector<TokenId>, TextHash, std::equal_to<>> ids;
};
ThreadCache& thread_cache() {
  static thread_local ThreadCache cache;
  return cache;
}

}  // namespace

void MergeTable::reserve(std::size_t count) {
  std::uint64_t size = 16;
  while (size < count * 2) size *= 2;
  mask_ = size - 1;
  table_.assign(size, {kEmpty, {}});
}

void MergeTable::add(TokenId left, TokenId right, Merge merge, bool keep_first) {
  const std::uint64_t key = key_of(left, right);
  std::uint64_t slot = mix(key) & mask_;
  while (table_[slot].first != kEmpty && table_[slot].first != key) slot = (slot + 1) & mask_;
  if (keep_first && table_[slot].first == key) return;
  table_[slot] = {key, merge};
}

const MergeTable::Merge* MergeTable::find(TokenId left, TokenId right) const {
  const std::uint64_t key = key_of(left, right);
  for (std::uint64_t slot = mix(key) & mask_;; slot = (slot + 1) & mask_) {
    if (table_[slot].first == key) return &table_[slot].second;
    if (table_[slot].first == kEmpty) return nullptr;
  }
}

void MergeTable::apply(std::vector<TokenId>& symbols) const {
  if (table_.empty()) return;
  if (symbols.size() <= kShortSymbols) {
    apply_short(symbols);
  } else {
    apply_long(symbols);
  }
}

void MergeTable::apply_short(std::vector<TokenId>& symbols) const {
  for (;;) {
    const Merge* best = nullptr;
    std::size_t place = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const Merge* merge = find(symbols[i], symbols[i + 1]);
      if (merge != nullptr && (best == nullptr || merge->rank < best->rank)) {
        best = merge;
        place = i;
      }
    }
    if (best == nullptr) return;
    symbols[place] = best->id;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(place) + 1);
  }
}

void MergeTable::apply_long(std::vector<TokenId>& symbols) const {
  struct Candidate {
    std::uint32_t rank;
    std::int32_t place;
    TokenId id;
    bool operator<(const Candidate& other) const {  // the queue's top is the lowest rank, then the leftmost
      return rank != other.rank ? rank > other.rank : place > other.place;
    }
  };
  const auto count = static_cast<std::int32_t>(symbols.size());
  std::vector<std::int32_t> previous(symbols.size()), next(symbols.size());
  std::vector<Candidate> first;
  const auto candidate_at = [&](std::int32_t left) -> Candidate {
    if (left < 0 || next[static_cast<std::size_t>(left)] >= count) return {0, -1, -1};
    const auto l = static_cast<std::size_t>(left), r = static_cast<std::size_t>(next[l]);
    const Merge* merge = find(symbols[l], symbols[r]);
    return merge == nullptr ? Candidate{0, -1, -1} : Candidate{merge->rank, left, merge->id};
  };
  for (std::int32_t i = 0; i < count; ++i) {
    previous[static_cast<std::size_t>(i)] = i - 1;
    next[static_cast<std::size_t>(i)] = i + 1;
  }
  for (std::int32_t i = 0; i + 1 < count; ++i) {
    if (const Candidate candidate = candidate_at(i); candidate.place >= 0) first.push_back(candidate);
  }
  std::priority_queue<Candidate> queue(std::less<Candidate>(), std::move(first));  // made in linear time
  while (!queue.empty()) {
    const Candidate candidate = queue.top();
    queue.pop();
    const auto left = static_cast<std::size_t>(candidate.place);
    if (symbols[left] < 0 || next[left] >= count) continue;
    const auto right = static_cast<std::size_t>(next[left]);
    const Merge* merge = find(symbols[left], symbols[right]);
    if (merge == nullptr || merge->id != candidate.id) continue;  // the neighbours changed meanwhile
    symbols[left] = candidate.id;
    symbols[right] = -1;
    next[left] = next[right];
    if (next[left] < count) previous[static_cast<std::size_t>(next[left])] = candidate.place;
    for (const std::int32_t place : {previous[left], candidate.place}) {
      if (const Candidate again = candidate_at(place); again.place >= 0) queue.push(again);
    }
  }
  std::erase(symbols, -1);
}

PieceCache::PieceCache() {
  static std::atomic<std::uint64_t> next_serial{1};
  serial_ = next_serial.fetch_add(1);
}

bool PieceCache::find(std::string_view piece, std::vector<TokenId>& ids) const {
  if (piece.size() > kCachedPieceBytes) return false;
  const ThreadCache& cache = thread_cache();
  if (cache.serial != serial_) return false;
  const auto found = cache.ids.find(piece);
  if (found == cache.ids.end()) return false;
  ids.insert(ids.end(), found->second.begin(), found->second.end());
  return true;
}

void PieceCache::keep(std::string_view piece, const TokenId* begin, const TokenId* end) const {
  if (piece.size() > kCachedPieceBytes) return;
  ThreadCache& cache = thread_cache();
  if (cache.serial != serial_ || cache.ids.size() > kCacheEntries) {
    cache.ids.clear();
    cache.serial = serial_;
  }
  cache.ids.emplace(piece, std::vector<TokenId>(begin, end));
}

namespace {

std::string_view last_character(std::string_view text) {
  std::size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return text.substr(begin);
}

}  // namespace

void WordCuts::see(std::string_view token) {
  for (std::size_t at = token.find(kMark, 1); at != std::string_view::npos; at = token.find(kMark, at + 1)) {
    before_[std::string(last_character(token.substr(0, at)))] = true;
  }
}

bool WordCuts::joined(std::string_view text, std::size_t at) const {
  return before_.contains(std::string(last_character(text.substr(0, at))));
}

}  // namespace magister
