// Levels, and list scheduling by the longest remaining chain (Graham 1969: at most twice the best; of many short tasks nearly the best).
#include "app/task_graph.h"

#include <algorithm>
#include <string>
#include <unordered_map>

namespace magister {

TaskNeeds needs_of(const Experiment& experiment) {
  TaskNeeds all;
  std::unordered_map<std::string, std::size_t> earlier;
  for (const auto& task : experiment.tasks()) {
    std::vector<std::size_t>& needs = all.emplace_back();
    for (const std::string& name : task->needs()) {
      if (const auto found = earlier.find(name); found != earlier.end()) needs.push_back(found->second);
    }
    std::sort(needs.begin(), needs.end());
    needs.erase(std::unique(needs.begin(), needs.end()), needs.end());
    earlier.emplace(task->name(), earlier.size());
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
