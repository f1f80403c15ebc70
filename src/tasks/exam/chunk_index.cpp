#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "magister/text/folded.h"
#include "tasks/exam/source.h"

namespace magister {
namespace {

constexpr double kK1 = 1.2, kB = 0.75;

}  // namespace

ChunkIndex::ChunkIndex(const std::vector<SourceChunk>& chunks) {
  std::map<std::string, std::vector<std::pair<std::uint32_t, std::uint32_t>>> postings;
  std::vector<double> lengths;
  for (std::uint32_t chunk = 0; chunk < chunks.size(); ++chunk) {
    const std::vector<std::string> words = folded_words(chunks[chunk].text);
    lengths.push_back(static_cast<double>(words.size()));
    for (const std::string& word : words) {
      auto& places = postings[word];
      if (places.empty() || places.back().first != chunk) places.emplace_back(chunk, 0);
      ++places.back().second;
    }
  }
  const double mean = std::accumulate(lengths.begin(), lengths.end(), 0.0) / std::max<double>(1, lengths.size());
  for (const double length : lengths) length_norm_.push_back(kK1 * (1 - kB + (mean > 0 ? kB * length / mean : 0)));
  postings_.assign(std::make_move_iterator(postings.begin()), std::make_move_iterator(postings.end()));
}

std::vector<ChunkIndex::Hit> ChunkIndex::best(std::string_view query, std::size_t most) const {
  std::vector<Hit> hits(length_norm_.size());
  for (std::size_t chunk = 0; chunk < hits.size(); ++chunk) hits[chunk] = {chunk, 0.0};
  const auto total = static_cast<double>(hits.size());
  for (const std::string& word : folded_words(query)) {
    const auto found = std::lower_bound(postings_.begin(), postings_.end(), word,
                                        [](const auto& entry, const std::string& w) { return entry.first < w; });
    if (found == postings_.end() || found->first != word) continue;
    const auto with_word = static_cast<double>(found->second.size());
    const double idf = std::log1p((total - with_word + 0.5) / (with_word + 0.5));
    for (const auto& [chunk, count] : found->second) {
      hits[chunk].score += idf * count * (kK1 + 1) / (count + length_norm_[chunk]);
    }
  }
  const std::size_t size = std::min(most, hits.size());
  std::partial_sort(
      hits.begin(), hits.begin() + static_cast<std::ptrdiff_t>(size), hits.end(),
      [](const Hit& a, const Hit& b) { return a.score != b.score ? a.score > b.score : a.chunk < b.chunk; });
  hits.resize(size);
  return hits;
}

}  // namespace magister
