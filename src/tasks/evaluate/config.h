// The keys of `task: evaluate`. configs/keys/evaluate.md lists each with default and range; keep the two in step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "magister/core/config.h"
#include "magister/experiment/config.h"
#include "magister/run/task_kinds.h"
#include "tasks/evaluate/estimators.h"

namespace magister {

// Score tasks of one method at several strengths: a curve over KL and FLOPs.
struct CurveConfig {
  std::string name;
  std::vector<std::string> scores;
};

struct EvaluateConfig {
  std::string name = "evaluation";
  std::vector<std::string> scores;  // score tasks of the same records: the methods that are compared
  // For each entry of scores: the task's name again, or the path of another run's results, whose method is RUN.TASK.
  std::vector<std::string> named;
  std::vector<std::uint64_t> pass_at = {1}, majority_at;
  std::string scores_place, pass_place, majority_place, threshold_place;  // file:line:column and key
  MajorityTies ties = MajorityTies::kWrong;
  double threshold = 0.5;  // a score of at least this is right
  bool has_threshold = false;
  std::vector<CurveConfig> curves;
};

EvaluateConfig read_evaluate_config(ConfigNode& node, const ExperimentConfig& experiment);
// Defined in src/tasks/evaluate/task.cpp.
TaskKind evaluate_task();

}  // namespace magister
