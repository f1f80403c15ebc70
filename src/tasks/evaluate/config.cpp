// The keys of `task: evaluate`, in the order in which the resolved experiment shows them.
#include "tasks/evaluate/config.h"

#include <algorithm>
#include <set>

#include "magister/core/error.h"

namespace magister {
namespace {

constexpr std::int64_t kMostTexts = 4096;  // a record has no more (generate.n)

std::vector<std::uint64_t> read_counts(ConfigNode& node, const char* key) {
  std::vector<std::uint64_t> counts;
  for (const std::int64_t one : node.optional_integers(key, 1, kMostTexts)) {
    if (std::find(counts.begin(), counts.end(), static_cast<std::uint64_t>(one)) != counts.end())
      node.reject(key, "{} stands there twice (one column would be another's copy); remove one of them", one);
    counts.push_back(static_cast<std::uint64_t>(one));
  }
  return counts;
}

}  // namespace

EvaluateConfig read_evaluate_config(ConfigNode& node) {
  EvaluateConfig config;
  config.name = read_task_name(node, "evaluation");
  config.scores = node.texts("scores");
  if (std::set<std::string>(config.scores.begin(), config.scores.end()).size() != config.scores.size())
    node.reject("scores", "names a task twice (its figures would stand there twice); remove one of them");
  ConfigNode section = node.section("evaluate");
  config.pass_place = section.place("pass_at");
  config.pass_at = read_counts(section, "pass_at");
  if (config.pass_at.empty()) config.pass_at = {1};
  config.majority_place = section.place("majority_at");
  config.majority_at = read_counts(section, "majority_at");
  ConfigNode of_majority = section.only_if(
      !config.majority_at.empty(), "is given without `majority_at` (nothing is elected); set it, or remove this");
  config.ties = of_majority.choice("majority_ties", {"wrong", "share"}, "wrong") == "share" ? MajorityTies::kShare
                                                                                            : MajorityTies::kWrong;
  config.threshold = section.number("threshold", 0.5, -1e30, 1e30);
  config.has_threshold = section.has("threshold");
  section.also_called("pass_at", {"k", "pass_at_k", "pass@k"});
  section.also_called("majority_at", {"maj_at", "maj_k", "maj@k", "cons_at"});
  node.also_called("scores", {"answers", "score", "methods"});
  return config;
}

}  // namespace magister
