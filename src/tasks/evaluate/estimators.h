// Estimates for one, k or a majority of k of several texts for a question. They are means over all choices of k texts,
// so they do not depend on which texts are drawn.
#pragma once

#include <cstdint>
#include <vector>

namespace magister {

// Probability that one of k texts is right, if c of n texts are: 1 - C(n-c, k) / C(n, k). 1 <= k <= n, c <= n. Source:
// Chen et al. (2021), Evaluating Large Language Models Trained on Code.
double pass_at(std::uint64_t n, std::uint64_t c, std::uint64_t k);

// Texts that gave the same answer.
struct AnswerClass {
  std::uint64_t size = 0;
  bool right = false;
};

enum class MajorityTies {
  kWrong,  // if two answers have the same largest number of votes, none is elected (as PITA counts)
  kShare,  // each of them is elected with the same probability
};

// Probability that the answer with most votes among k texts is right, as the mean over all choices of k of the n texts:
// those of the classes, and `silent` ones, which gave no answer and have no vote. 1 <= k <= n <= 4,096. For k = n it is
// the vote of all.
double majority_at(const std::vector<AnswerClass>& classes, std::uint64_t silent, std::uint64_t k, MajorityTies ties);

}  // namespace magister
