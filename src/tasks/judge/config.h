// The keys of `task: judge`. configs/keys/judge.md lists each with default and range; keep the two in step.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "magister/core/config.h"
#include "magister/experiment/config.h"
#include "magister/io/dataset/dataset.h"
#include "magister/run/task_kinds.h"
#include "magister/tasks/judge/rules.h"

namespace magister {

class Task;

// How several verdicts on one text become one.
enum class JudgeCombine { kMeanLogOdds, kMajority, kUnanimous };

struct JudgeConfig : JudgeRules, BatchKeys {
  ModelSection model;                      // the task's own or the experiment's
  DatasetConfig dataset;                   // records with the fields that the prompt reads
  std::string answers;                     // a generate task of this experiment: its texts are the field `answer`
  std::string answers_place, panel_place;  // file:line:column and key
  JudgeCombine combine = JudgeCombine::kMeanLogOdds;
  std::vector<std::string>
      panel;                // earlier judge tasks, whose verdicts on the same texts are combined with this task's
  std::string label_field;  // the field with a person's verdict, for the summary; empty: none
};

JudgeConfig read_judge_config(ConfigNode& node, const ExperimentConfig& experiment);
// Defined in src/tasks/judge/task.cpp.
TaskKind judge_task();

}  // namespace magister
