// Choices are counted class by class. C(4096, 2048) is about 10^1231: long double holds it, double does not.
#include "tasks/evaluate/estimators.h"

#include <algorithm>

namespace magister {
namespace {

// Numbers of choices: [texts chosen][classes with as many votes as the elected one].
using Ways = std::vector<std::vector<long double>>;

// C(n, 0) .. C(n, most).
std::vector<long double> choices(std::uint64_t n, std::uint64_t most) {
  std::vector<long double> all = {1};
  for (std::uint64_t i = 1; i <= most; ++i)
    all.push_back(i > n ? 0 : all.back() * static_cast<long double>(n - i + 1) / static_cast<long double>(i));
  return all;
}

// Adds a class that may have at most `votes` of the chosen texts. With exactly `votes` it ties with the elected answer;
// this case is left out if `ways` has no room for it.
void add_class(Ways& ways, std::uint64_t size, std::uint64_t votes) {
  const std::uint64_t k = ways.size() - 1, most = std::min({size, k, votes});
  const std::vector<long double> of_class = choices(size, most);
  Ways next(ways.size(), std::vector<long double>(ways[0].size(), 0));
  for (std::uint64_t chosen = 0; chosen <= k; ++chosen) {
    for (std::size_t tied = 0; tied < ways[chosen].size(); ++tied) {
      if (ways[chosen][tied] == 0) continue;
      for (std::uint64_t more = 0; more <= most && chosen + more <= k; ++more) {
        const std::size_t then = tied + (more == votes ? 1 : 0);
        if (then < next[chosen + more].size()) next[chosen + more][then] += ways[chosen][tied] * of_class[more];
      }
    }
  }
  ways = std::move(next);
}

}  // namespace

double pass_at(std::uint64_t n, std::uint64_t c, std::uint64_t k) {
  if (n - c < k) return 1;
  double all_wrong = 1;
  for (std::uint64_t i = n - c + 1; i <= n; ++i) all_wrong *= 1 - static_cast<double>(k) / static_cast<double>(i);
  return 1 - all_wrong;
}

double majority_at(const std::vector<AnswerClass>& classes, std::uint64_t silent, std::uint64_t k, MajorityTies ties) {
  const bool share = ties == MajorityTies::kShare;
  std::uint64_t n = silent;
  for (const AnswerClass& one : classes) n += one.size;
  long double elected = 0;
  for (std::size_t candidate = 0; candidate < classes.size(); ++candidate) {
    if (!classes[candidate].right) continue;
    const std::uint64_t most = std::min(classes[candidate].size, k);
    const std::vector<long double> of_candidate = choices(classes[candidate].size, most);
    for (std::uint64_t votes = 1; votes <= most; ++votes) {
      const std::uint64_t rest = k - votes;
      Ways ways(rest + 1, std::vector<long double>(share ? rest / votes + 1 : 1, 0));
      ways[0][0] = 1;
      for (std::size_t other = 0; other < classes.size(); ++other)
        if (other != candidate) add_class(ways, classes[other].size, votes);
      const std::vector<long double> of_silent = choices(silent, rest);
      for (std::uint64_t chosen = 0; chosen <= rest; ++chosen) {
        for (std::size_t tied = 0; tied < ways[chosen].size(); ++tied)
          elected += of_candidate[votes] * ways[chosen][tied] * of_silent[rest - chosen] /
                     (static_cast<long double>(tied) + 1);
      }
    }
  }
  return static_cast<double>(elected / choices(n, k).back());
}

}  // namespace magister
