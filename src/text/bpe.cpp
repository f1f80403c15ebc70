// Short pieces by repeated scans (they are a few symbols long and stay in registers), long ones with a heap over a
// linked list; a small cache a thread for the words that come again.
#include "text/bpe.h"

#include <algorithm>
#include <atomic>
#include <queue>

#include "magister/core/error.h"
#include "text/unicode.h"

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

struct PieceCache {
  std::uint64_t serial = 0;
  std::unordered_map<std::string, std::vector<TokenId>> ids;
};

std::array<std::string, 256> build_byte_characters() {
  std::array<std::string, 256> characters;
  char32_t next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable_byte = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    append_utf8(characters[static_cast<std::size_t>(byte)], printable_byte ? static_cast<char32_t>(byte) : next++);
  }
  return characters;
}

}  // namespace

const std::array<std::string, 256>& byte_characters() {
  static const auto kCharacters = build_byte_characters();
  return kCharacters;
}

bool bytes_of_token(std::string_view token, std::string& bytes) {
  static const auto kBytes = [] {
    std::unordered_map<std::string_view, char> map;
    for (std::size_t byte = 0; byte < 256; ++byte) map[byte_characters()[byte]] = static_cast<char>(byte);
    return map;
  }();
  bytes.clear();
  for (std::size_t at = 0; at < token.size();) {
    const std::size_t length = code_point_at(token, at).bytes;
    const auto found = kBytes.find(token.substr(at, length));
    if (found == kBytes.end()) return false;
    bytes += found->second;
    at += length;
  }
  return true;
}

Bpe::Bpe(std::unordered_map<std::string, TokenId> vocab, const std::vector<std::pair<std::string, std::string>>& merges,
         bool ignore_merges, const std::string& source)
    : vocab_(std::move(vocab)) {
  static std::atomic<std::uint64_t> next_serial{1};
  serial_ = next_serial.fetch_add(1);
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const auto found = vocab_.find(byte_characters()[byte]);
    byte_ids_[byte] = found == vocab_.end() ? -1 : found->second;
  }
  std::uint64_t size = 16;
  while (size < merges.size() * 2) size *= 2;
  mask_ = size - 1;
  table_.assign(size, {kEmpty, {}});
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    const auto id_of = [&](const std::string& token) {
      const auto found = vocab_.find(token);
      MAGISTER_CHECK(found != vocab_.end(), ExitCode::kData,
                     "{}: merge {} (\"{}\" and \"{}\") names \"{}\", which is not in the "
                     "vocabulary (texts could not be encoded as the model was trained); fetch the file again",
                     source, rank, printable(left), printable(right), printable(token));
      return found->second;
    };
    const std::uint64_t key = key_of(id_of(left), id_of(right));
    const Merge merge{static_cast<std::uint32_t>(rank), id_of(left + right)};
    std::uint64_t slot = mix(key) & mask_;
    while (table_[slot].first != kEmpty && table_[slot].first != key) slot = (slot + 1) & mask_;
    table_[slot] = {key, merge};  // the reference keeps the last of two equal pairs
  }
  if (!ignore_merges) return;
  std::string bytes;
  for (const auto& [token, id] : vocab_) {
    if (bytes_of_token(token, bytes)) whole_[bytes] = id;
  }
}

const Bpe::Merge* Bpe::find_merge(TokenId left, TokenId right) const {
  const std::uint64_t key = key_of(left, right);
  for (std::uint64_t slot = mix(key) & mask_;; slot = (slot + 1) & mask_) {
    if (table_[slot].first == key) return &table_[slot].second;
    if (table_[slot].first == kEmpty) return nullptr;
  }
}

void Bpe::merge_short(std::vector<TokenId>& symbols) const {
  for (;;) {
    const Merge* best = nullptr;
    std::size_t place = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const Merge* merge = find_merge(symbols[i], symbols[i + 1]);
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

void Bpe::merge_long(std::vector<TokenId>& symbols) const {
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
  std::priority_queue<Candidate> queue;
  const auto offer = [&](std::int32_t left) {
    if (left < 0 || next[static_cast<std::size_t>(left)] >= count) return;
    const auto l = static_cast<std::size_t>(left), r = static_cast<std::size_t>(next[l]);
    if (const Merge* merge = find_merge(symbols[l], symbols[r])) queue.push({merge->rank, left, merge->id});
  };
  for (std::int32_t i = 0; i < count; ++i) {
    previous[static_cast<std::size_t>(i)] = i - 1;
    next[static_cast<std::size_t>(i)] = i + 1;
  }
  for (std::int32_t i = 0; i + 1 < count; ++i) offer(i);
  while (!queue.empty()) {
    const Candidate candidate = queue.top();
    queue.pop();
    const auto left = static_cast<std::size_t>(candidate.place);
    if (symbols[left] < 0 || next[left] >= count) continue;
    const auto right = static_cast<std::size_t>(next[left]);
    const Merge* merge = find_merge(symbols[left], symbols[right]);
    if (merge == nullptr || merge->id != candidate.id) continue;  // the neighbours changed meanwhile
    symbols[left] = candidate.id;
    symbols[right] = -1;
    next[left] = next[right];
    if (next[left] < count) previous[static_cast<std::size_t>(next[left])] = candidate.place;
    offer(previous[left]);
    offer(candidate.place);
  }
  std::erase(symbols, -1);
}

void Bpe::encode(std::string_view piece, std::vector<TokenId>& ids) const {
  if (piece.empty()) return;
  static thread_local PieceCache cache;
  const bool cached = piece.size() <= kCachedPieceBytes;
  static thread_local std::string key;
  if (cached) {
    if (cache.serial != serial_ || cache.ids.size() > kCacheEntries) {
      cache.ids.clear();
      cache.serial = serial_;
    }
    key.assign(piece);
    if (const auto found = cache.ids.find(key); found != cache.ids.end()) {
      ids.insert(ids.end(), found->second.begin(), found->second.end());
      return;
    }
  }
  std::vector<TokenId> symbols;
  const auto whole = whole_.empty() ? whole_.end() : whole_.find(std::string(piece));
  if (whole != whole_.end()) {
    symbols.push_back(whole->second);
  } else {
    for (const char c : piece) {
      const TokenId id = byte_ids_[static_cast<unsigned char>(c)];
      if (id >= 0) symbols.push_back(id);  // without an unknown token the reference drops such bytes, too
    }
    if (symbols.size() <= kShortSymbols) {
      merge_short(symbols);
    } else {
      merge_long(symbols);
    }
  }
  ids.insert(ids.end(), symbols.begin(), symbols.end());
  if (cached) cache.ids.emplace(key, std::move(symbols));
}

}  // namespace magister
