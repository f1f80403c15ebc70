// Levels, and list scheduling by the longest remaining chain (Graham 1969: at most twice the best; of many short tasks nearly the best).
#include "app/task_graph.h"

#include <algorithm>

namespace magister {

TaskNeeds needs_of(const Experiment& experiment) {
  TaskNeeds all;
  for (std::size_t i = 0; i < experiment.tasks().size(); ++i) {
    std::vector<std::size_t>& needs = all.emplace_back();
    const std::vector<std::string> names = experiment.tasks()[i]->needs();
    for (std::size_t j = 0; j < i; ++j) {
      if (std::find(names.begin(), names.end(), experiment.tasks()[j]->name()) != names.end()) needs.push_back(j);
    }
  }
  return all;
}

std::vector<TaskStage> stages_of(const TaskNeeds& needs, int most_parts) {
  std::vector<std::size_t> level(needs.size(), 0), width;
  for (std::size_t i = 0; i < needs.size(); ++i) {
    for (const std::size_t j : needs[i]) level[i] = std::max(level[i], level[j] + 1);
    width.resize(std::max(width.size(), level[i] + 1), 0);
    ++width[level[i]];
  }
  std::vector<TaskStage> stages;
  std::vector<std::size_t> stage_of;  // of each level
  for (const std::size_t tasks : width) {
    const int parts = static_cast<int>(std::min(tasks, static_cast<std::size_t>(std::max(most_parts, 1))));
    if (stages.empty() || stages.back().parts != parts) stages.push_back({{}, parts});
    stage_of.push_back(stages.size() - 1);
  }
  for (std::size_t i = 0; i < needs.size(); ++i) stages[stage_of[level[i]]].tasks.push_back(i);
  return stages;
}

std::vector<std::size_t> longest_first(const TaskStage& stage, const TaskNeeds& needs,
                                       const std::vector<double>& costs) {
  std::vector<double> behind(needs.size(), 0);  // with the task itself
  for (std::size_t i = needs.size(); i-- > 0;) {
    behind[i] += costs[i];
    for (const std::size_t j : needs[i]) behind[j] = std::max(behind[j], behind[i]);
  }
  std::vector<std::size_t> order = stage.tasks;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return behind[a] > behind[b]; });
  return order;
}

}  // namespace magister
