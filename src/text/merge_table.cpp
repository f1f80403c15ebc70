// Short pieces are merged by repeated scans (they are a few symbols long and stay in registers), longer ones with a
// heap over a linked list, very long ones with a queue per rank. A small cache per thread holds words that recur.
#include "text/merge_table.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <queue>

namespace magister {
namespace {

constexpr std::uint64_t kEmpty = ~0ull;
constexpr std::size_t kShortSymbols = 24;  // n * n / 2 look-ups cost less than a heap
constexpr std::size_t kOneHeap = 1 << 13;  // longer pieces use a queue per rank
constexpr std::size_t kCachedPieceBytes = 32;
constexpr std::size_t kCacheEntries = 1 << 15;  // a few MB per thread

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

namespace {

struct Candidate {
  std::uint32_t rank;
  std::int32_t place;
  TokenId id;
  bool operator<(const Candidate& other) const {  // the queue's top is the lowest rank, then the leftmost
    return rank != other.rank ? rank > other.rank : place > other.place;
  }
};

// The same order for words of any length, with one queue per rank; there are no more ranks than merges. Nearly all
// candidates of a rank arrive from left to right, so they are read in sequence and few wait in a heap. One heap over 4
// MB of text would exceed any cache, and each step down it would wait for memory.
class RankedCandidates {
 public:
  void push(const Candidate& candidate) {
    Rank& rank = by_rank_[candidate.rank];
    if (rank.empty()) ranks_.push(candidate.rank);
    if (rank.in_order.empty() || rank.in_order.back().place <= candidate.place) {
      rank.in_order.push_back(candidate);
    } else {
      rank.late.push(candidate);
    }
  }
  bool empty() const { return ranks_.empty(); }
  Candidate pop() {
    Rank& rank = by_rank_[ranks_.top()];
    const bool is_late = rank.next == rank.in_order.size() ||
                         (!rank.late.empty() && rank.late.top().place < rank.in_order[rank.next].place);
    const Candidate first = is_late ? rank.late.top() : rank.in_order[rank.next];
    if (is_late) {
      rank.late.pop();
    } else {
      ++rank.next;
    }
    if (rank.empty()) {
      rank.in_order.clear();
      rank.next = 0;
      ranks_.pop();
    }
    return first;
  }

 private:
  struct Rank {
    std::vector<Candidate> in_order;
    std::size_t next = 0;
    std::priority_queue<Candidate> late;
    bool empty() const { return next == in_order.size() && late.empty(); }
  };
  std::unordered_map<std::uint32_t, Rank> by_rank_;
  std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> ranks_;  // of the non-empty queues
};

class OneHeap {
 public:
  void push(const Candidate& candidate) { queue_.push(candidate); }
  bool empty() const { return queue_.empty(); }
  Candidate pop() {
    const Candidate first = queue_.top();
    queue_.pop();
    return first;
  }

 private:
  std::priority_queue<Candidate> queue_;
};

}  // namespace

template <typename Queue>
void MergeTable::apply_long(std::vector<TokenId>& symbols) const {
  struct Symbol {
    TokenId id;
    std::int32_t previous, next;
  };
  const auto count = static_cast<std::int32_t>(symbols.size());
  std::vector<Symbol> list(symbols.size());
  Queue queue;
  const auto push_at = [&](std::int32_t left) {
    if (left < 0) return;
    const Symbol& symbol = list[static_cast<std::size_t>(left)];
    if (symbol.next >= count) return;
    const Merge* merge = find(symbol.id, list[static_cast<std::size_t>(symbol.next)].id);
    if (merge != nullptr) queue.push({merge->rank, left, merge->id});
  };
  for (std::int32_t i = 0; i < count; ++i)
    list[static_cast<std::size_t>(i)] = {symbols[static_cast<std::size_t>(i)], i - 1, i + 1};
  for (std::int32_t i = 0; i + 1 < count; ++i) push_at(i);
  while (!queue.empty()) {
    const Candidate candidate = queue.pop();
    Symbol& left = list[static_cast<std::size_t>(candidate.place)];
    if (left.id < 0 || left.next >= count) continue;
    Symbol& right = list[static_cast<std::size_t>(left.next)];
    const Merge* merge = find(left.id, right.id);
    if (merge == nullptr || merge->id != candidate.id) continue;  // the neighbours have changed since
    left.id = candidate.id;
    right.id = -1;
    left.next = right.next;
    if (left.next < count) list[static_cast<std::size_t>(left.next)].previous = candidate.place;
    push_at(left.previous);
    push_at(candidate.place);
  }
  symbols.clear();
  for (const Symbol& symbol : list) {
    if (symbol.id >= 0) symbols.push_back(symbol.id);
  }
}

void MergeTable::apply(std::vector<TokenId>& symbols) const {
  if (table_.empty()) return;
  if (symbols.size() <= kShortSymbols) {
    apply_short(symbols);
  } else {
    symbols.size() <= kOneHeap ? apply_long<OneHeap>(symbols) : apply_long<RankedCandidates>(symbols);
  }
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
