// Items of one exam that say nearly the same, by MinHash (Broder, "On the resemblance and containment of documents",
// 1997). Local, deterministic; signatures of different ranks may be compared.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tasks/exam/item.h"

namespace magister {

inline constexpr std::size_t kMinHashes = 128;
using MinHashSignature = std::array<std::uint32_t, kMinHashes>;

// Hashes the text's shingles of 3 words (shorter texts: all their words) after NFKC and case folding.
MinHashSignature minhash(std::string_view text);
// Estimate of the Jaccard similarity: the share of equal hashes.
double similarity(const MinHashSignature& a, const MinHashSignature& b);

// The text of an item that decides: its stem and its right answer.
std::string duplicate_text(const ExamItem& item);

struct DuplicatePair {
  std::size_t first, second;  // indexes, first < second
  double similarity;
};
inline constexpr double kDuplicateSimilarity = 0.7;

// The pairs of at least `least` similarity, found by bands of 4 hashes, ordered by (second, first): of a pair the later
// item is the duplicate. Finds all pairs of equal texts, and pairs at 0.7 with a probability above 0.999. Of texts that
// are equal, only the first is the `first` of a pair: a text that a million items repeat gives a million pairs and not
// half a billion. Who rejects the later item of each pair whose earlier one is still there rejects the same items.
std::vector<DuplicatePair> find_duplicates(const std::vector<MinHashSignature>& signatures,
                                           double least = kDuplicateSimilarity);

}  // namespace magister
