#include "tasks/exam/duplicates.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "magister/core/splitmix64.h"
#include "magister/text/folded.h"

namespace magister {
namespace {

constexpr std::size_t kShingleWords = 3, kBandRows = 4;

// FNV-1a of 64 bits (Fowler, Noll & Vo): the same number on every machine.
std::uint64_t fnv_of(std::string_view bytes, std::uint64_t hash = 0xcbf29ce484222325ull) {
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash;
}

}  // namespace

MinHashSignature minhash(std::string_view text) {
  static const std::array<std::uint64_t, kMinHashes> kSalts = [] {
    std::array<std::uint64_t, kMinHashes> salts{};
    for (std::size_t i = 0; i < kMinHashes; ++i) salts[i] = splitmix64(i);
    return salts;
  }();
  MinHashSignature signature;
  signature.fill(std::numeric_limits<std::uint32_t>::max());
  const std::vector<std::string> words = folded_words(text);
  const std::size_t width = std::min(words.size(), kShingleWords);
  for (std::size_t first = 0; width > 0 && first + width <= words.size(); ++first) {
    std::uint64_t shingle = fnv_of("");
    for (std::size_t i = 0; i < width; ++i) shingle = fnv_of(" ", fnv_of(words[first + i], shingle));
    for (std::size_t i = 0; i < kMinHashes; ++i) {
      const auto hash = static_cast<std::uint32_t>(splitmix64(shingle ^ kSalts[i]) >> 32);
      signature[i] = std::min(signature[i], hash);
    }
  }
  return signature;
}

double similarity(const MinHashSignature& a, const MinHashSignature& b) {
  std::size_t equal = 0;
  for (std::size_t i = 0; i < kMinHashes; ++i) equal += a[i] == b[i];
  return static_cast<double>(equal) / kMinHashes;
}

std::string duplicate_text(const ExamItem& item) {
  const bool is_choice = item.kind == ItemKind::kChoice && item.key < item.choices.size();
  return item.stem + "\n" + (is_choice ? item.choices[item.key].text : right_answer(item));
}

namespace {

// Items with the same signature, ascending; [0] represents them.
using Group = std::vector<std::size_t>;

std::vector<Group> equal_signatures(const std::vector<MinHashSignature>& signatures) {
  std::vector<Group> groups;
  std::unordered_map<std::string_view, std::size_t> place;
  for (std::size_t item = 0; item < signatures.size(); ++item) {
    const std::string_view bytes(reinterpret_cast<const char*>(signatures[item].data()), sizeof(MinHashSignature));
    const auto [found, is_new] = place.try_emplace(bytes, groups.size());
    if (is_new) groups.emplace_back();
    groups[found->second].push_back(item);
  }
  return groups;
}

bool agree_in_band(const MinHashSignature& a, const MinHashSignature& b, std::size_t band) {
  return std::memcmp(&a[band], &b[band], kBandRows * sizeof(a[0])) == 0;
}

// Calls visit(a, b) once for each two groups that agree in a band, a < b.
template <typename Visit>
void for_candidates(const std::vector<Group>& groups, const std::vector<MinHashSignature>& signatures,
                    const Visit& visit) {
  std::vector<std::pair<std::uint64_t, std::size_t>> buckets(groups.size());
  for (std::size_t band = 0; band < kMinHashes; band += kBandRows) {
    for (std::size_t group = 0; group < groups.size(); ++group) {
      std::uint64_t hash = band;
      for (std::size_t i = 0; i < kBandRows; ++i) hash = splitmix64(hash ^ signatures[groups[group][0]][band + i]);
      buckets[group] = {hash, group};
    }
    std::sort(buckets.begin(), buckets.end());
    for (std::size_t begin = 0, end = 0; begin < buckets.size(); begin = end) {
      while (end < buckets.size() && buckets[end].first == buckets[begin].first) ++end;
      for (std::size_t i = begin; i < end; ++i) {
        const MinHashSignature& a = signatures[groups[buckets[i].second][0]];
        for (std::size_t j = i + 1; j < end; ++j) {
          const MinHashSignature& b = signatures[groups[buckets[j].second][0]];
          bool is_new = agree_in_band(a, b, band);
          for (std::size_t earlier = 0; is_new && earlier < band; earlier += kBandRows)
            is_new = !agree_in_band(a, b, earlier);
          if (is_new) visit(buckets[i].second, buckets[j].second);
        }
      }
    }
  }
}

}  // namespace

std::vector<DuplicatePair> find_duplicates(const std::vector<MinHashSignature>& signatures, double least) {
  const std::vector<Group> groups = equal_signatures(signatures);
  std::vector<DuplicatePair> pairs;
  for (const Group& group : groups) {
    for (std::size_t copy = 1; copy < group.size(); ++copy) pairs.push_back({group[0], group[copy], 1.0});
  }
  const auto add = [&](std::size_t a, const Group& others, double value) {
    for (const std::size_t b : others) {
      if (a < b) pairs.push_back({a, b, value});
    }
  };
  for_candidates(groups, signatures, [&](std::size_t one, std::size_t other) {
    const std::size_t a = groups[one][0], b = groups[other][0];
    const double value = similarity(signatures[a], signatures[b]);
    if (value < least) return;
    add(a, groups[other], value);
    add(b, groups[one], value);  // copies of a that come after b
  });
  std::sort(pairs.begin(), pairs.end(), [](const DuplicatePair& x, const DuplicatePair& y) {
    return x.second != y.second ? x.second < y.second : x.first < y.first;
  });
  return pairs;
}

}  // namespace magister
