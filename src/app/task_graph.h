// Which tasks of an experiment may run at once: a function of what they need and of the number of GPU groups alone.
#pragma once

#include <cstddef>
#include <vector>

#include "magister/app/experiment.h"

namespace magister {

// Of each task the numbers of the tasks before it that it needs.
using TaskNeeds = std::vector<std::vector<std::size_t>>;
TaskNeeds needs_of(const Experiment& experiment);

// Tasks that run between two meetings of all ranks, over so many equal parts of the world: whoever is free takes the next one whose needs are
// met. One part: one task after the other, in the order of the experiment, each over the whole world.
struct TaskStage {
  std::vector<std::size_t> tasks;  // ascending
  int parts = 1;
};

// A level of the graph, tasks whose longest chain of needs has one length, is computed by as many parts as it has tasks, at most `most_parts`;
// levels that follow each other with as many parts are one stage, so a chain of single tasks has the whole world for each.
std::vector<TaskStage> stages_of(const TaskNeeds& needs, int most_parts);

// The order in which tasks of a stage are begun: those first whose own cost and that of the longest chain behind them is largest; of equals the
// first in the experiment. costs: of each task, in any unit.
std::vector<std::size_t> longest_first(const TaskStage& stage, const TaskNeeds& needs,
                                       const std::vector<double>& costs);

}  // namespace magister
