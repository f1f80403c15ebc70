#include "tasks/exam/duplicates.h"

#include <algorithm>
#include <limits>
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
  MinHashSignature signature;
  signature.fill(std::numeric_limits<std::uint32_t>::max());
  const std::vector<std::string> words = folded_words(text);
  const std::size_t width = std::min(words.size(), kShingleWords);
  for (std::size_t first = 0; width > 0 && first + width <= words.size(); ++first) {
    std::uint64_t shingle = fnv_of("");
    for (std::size_t i = 0; i < width; ++i) shingle = fnv_of(" ", fnv_of(words[first + i], shingle));
    for (std::size_t i = 0; i < kMinHashes; ++i) {
      const auto hash = static_cast<std::uint32_t>(splitmix64(shingle ^ splitmix64(i)) >> 32);
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

std::vector<DuplicatePair> find_duplicates(const std::vector<MinHashSignature>& signatures, double least) {
  std::vector<std::pair<std::size_t, std::size_t>> candidates;  // (second, first)
  for (std::size_t band = 0; band < kMinHashes; band += kBandRows) {
    std::unordered_map<std::uint64_t, std::vector<std::size_t>> buckets;
    for (std::size_t item = 0; item < signatures.size(); ++item) {
      std::uint64_t bucket = band;
      for (std::size_t i = 0; i < kBandRows; ++i) bucket = splitmix64(bucket ^ signatures[item][band + i]);
      std::vector<std::size_t>& earlier = buckets[bucket];
      for (const std::size_t first : earlier) candidates.emplace_back(item, first);
      earlier.push_back(item);
    }
    std::sort(candidates.begin(), candidates.end());
    candidates.erase(std::unique(candidates.begin(), candidates.end()), candidates.end());
  }
  std::vector<DuplicatePair> pairs;
  for (const auto& [second, first] : candidates) {
    const double value = similarity(signatures[first], signatures[second]);
    if (value >= least) pairs.push_back({first, second, value});
  }
  return pairs;
}

}  // namespace magister
