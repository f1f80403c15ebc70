// What several tries at a question say about one, k or a majority of k of them, without luck of the draw: means over all choices of k.
#pragma once

#include <cstdint>
#include <vector>

namespace magister {

// That one of k tries is right, of n of which c are: 1 - C(n-c, k) / C(n, k). 1 <= k <= n, c <= n.
// Source: Chen et al. (2021), Evaluating Large Language Models Trained on Code.
double pass_at(std::uint64_t n, std::uint64_t c, std::uint64_t k);

// Tries that gave the same answer.
struct AnswerClass {
  std::uint64_t size = 0;
  bool right = false;
};

enum class MajorityTies {
  kWrong,  // two answers with the same most votes: none is elected (as PITA counts)
  kShare,  // each of them is elected with the same probability
};

// That the answer with most votes among k tries is right, in the mean over all choices of k of the n tries: those of the classes and `silent`
// ones, which gave no answer and have no vote. 1 <= k <= n <= 4,096. At k = n it is the vote of all.
double majority_at(const std::vector<AnswerClass>& classes, std::uint64_t silent, std::uint64_t k, MajorityTies ties);

}  // namespace magister
