// The keys of `task: evaluate`, in the order in which the resolved experiment shows them.
#include "tasks/evaluate/config.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "magister/core/error.h"
#include "magister/run/earlier_tasks.h"

namespace magister {
namespace {

constexpr std::int64_t kMostTexts = 4096;  // a record has no more texts (generate.n)

std::vector<std::uint64_t> read_counts(ConfigNode& node, const char* key) {
  std::vector<std::uint64_t> counts;
  for (const std::int64_t one : node.optional_integers(key, 1, kMostTexts)) {
    if (std::find(counts.begin(), counts.end(), static_cast<std::uint64_t>(one)) != counts.end())
      node.reject(key, "{} is listed twice (one column would be a copy of the other); remove one of them", one);
    counts.push_back(static_cast<std::uint64_t>(one));
  }
  return counts;
}

std::string hint_for(const std::string& name, const std::vector<std::string>& scores) {
  const std::string nearest = nearest_name(name, scores);
  return nearest.empty() ? "write one of those" : "did you mean " + printable(nearest) + "?";
}

// The method of "runs/b/score.h5" is b.score.
std::string method_of(const std::string& named) {
  if (is_plain_name(named)) return named;
  const std::filesystem::path path = std::filesystem::absolute(named).lexically_normal();
  const std::string name = results_name(named);
  return path.extension() == ".h5" ? path.parent_path().filename().string() + "." + name : name;
}

std::vector<CurveConfig> read_curves(ConfigNode& section, const std::vector<std::string>& scores,
                                     const ExperimentConfig& experiment) {
  std::vector<CurveConfig> curves;
  for (ConfigNode& node : section.optional_sections("curves")) {
    CurveConfig& curve = curves.emplace_back(CurveConfig{node.text("name"), {}});
    for (const std::string& written : node.texts("scores")) {
      const std::string& name = curve.scores.emplace_back(method_of(experiment.task_of(written)));
      if (std::find(scores.begin(), scores.end(), name) == scores.end())
        node.reject("scores", "{} is none of this evaluation's scores (nothing is known of it); {}", printable(name),
                    hint_for(name, scores));
    }
    const auto same = [&](const CurveConfig& other) { return other.name == curve.name; };
    if (std::any_of(curves.begin(), curves.end() - 1, same))
      node.reject("name", "{} names two curves (one would hide the other); give them names of their own",
                  printable(curve.name));
  }
  if (curves.size() == 1)
    section.reject("curves", "has one curve (there is none to compare it with); add another, or remove it");
  return curves;
}

}  // namespace

EvaluateConfig read_evaluate_config(ConfigNode& node, const ExperimentConfig& experiment) {
  EvaluateConfig config;
  config.name = read_task_name(node, "evaluation");
  for (const std::string& score : node.texts("scores")) {
    config.named.push_back(experiment.task_of(score));
    config.scores.push_back(method_of(config.named.back()));
  }
  config.scores_place = node.place("scores");
  if (std::set<std::string>(config.scores.begin(), config.scores.end()).size() != config.scores.size())
    node.reject("scores", "names a task twice (its figures would be there twice); remove one of them");
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
  config.threshold_place = section.place("threshold");
  config.curves = read_curves(section, config.scores, experiment);
  section.also_called("pass_at", {"k", "pass_at_k", "pass@k"});
  section.also_called("majority_at", {"maj_at", "maj_k", "maj@k", "cons_at"});
  node.also_called("scores", {"answers", "score", "methods"});
  return config;
}

}  // namespace magister
