// Stages and order of graphs by hand, and list scheduling of random graphs against its bound.
#include "app/task_graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace magister {
namespace {

std::vector<std::vector<std::size_t>> tasks_of(const std::vector<TaskStage>& stages) {
  std::vector<std::vector<std::size_t>> all;
  for (const TaskStage& stage : stages) all.push_back(stage.tasks);
  return all;
}

TEST(TaskGraph, AChainHasAllRanksForEach) {
  const std::vector<TaskStage> stages = stages_of({{}, {0}, {1}}, 8);
  EXPECT_EQ(tasks_of(stages), (std::vector<std::vector<std::size_t>>{{0, 1, 2}}));
  EXPECT_EQ(stages[0].parts, 1);
}

TEST(TaskGraph, ChainsBesideEachOtherDoNotMeet) {
  // Two seeds: generate, train, generate; then one evaluation of both.
  const std::vector<TaskStage> stages = stages_of({{}, {0}, {1}, {}, {3}, {4}, {2, 5}}, 4);
  EXPECT_EQ(tasks_of(stages), (std::vector<std::vector<std::size_t>>{{0, 1, 2, 3, 4, 5}, {6}}));
  EXPECT_EQ(stages[0].parts, 2);
  EXPECT_EQ(stages[1].parts, 1);
}

TEST(TaskGraph, OneGroupRunsTheExperimentsOrder) {
  const std::vector<TaskStage> stages = stages_of({{}, {0}, {}, {2}}, 1);
  EXPECT_EQ(tasks_of(stages), (std::vector<std::vector<std::size_t>>{{0, 1, 2, 3}}));
}

TEST(TaskGraph, WhatHasMostBehindItBeginsFirst) {
  const TaskNeeds needs = {{}, {}, {0}, {}};
  EXPECT_EQ(longest_first({{0, 1, 2, 3}, 2}, needs, {1, 5, 7, 5}), (std::vector<std::size_t>{0, 2, 1, 3}));
}

// Who is free takes the first of the order whose needs are done: 40 tasks over 8 parts, ten graphs.
TEST(TaskGraph, FortyTasksOverEightParts) {
  std::mt19937_64 random(1);
  for (int graph = 0; graph < 10; ++graph) {
    TaskNeeds needs(40);
    std::vector<double> costs(40), end(40, -1);
    for (std::size_t i = 0; i < 40; ++i) {
      costs[i] = 1.0 + static_cast<double>(random() % 100) / 10;
      if (i >= 16 && random() % 2 == 0) needs[i] = {i - 16};
    }
    TaskStage all{{}, 8};
    for (std::size_t i = 0; i < 40; ++i) all.tasks.push_back(i);
    const std::vector<std::size_t> order = longest_first(all, needs, costs);
    std::vector<double> free_at(8, 0);
    std::vector<bool> begun(40, false);
    for (int left = 40; left > 0;) {
      auto part = std::min_element(free_at.begin(), free_at.end());
      bool found = false;
      for (const std::size_t i : order) {
        if (begun[i]) continue;
        const bool ready =
            std::all_of(needs[i].begin(), needs[i].end(), [&](std::size_t j) { return begun[j] && end[j] <= *part; });
        if (!ready) continue;
        begun[i] = found = true;
        *part = end[i] = *part + costs[i];
        --left;
        break;
      }
      if (!found) *part += 0.01;
    }
    double sum = 0;
    for (const double cost : costs) sum += cost;
    const double bound = std::max(*std::max_element(costs.begin(), costs.end()), sum / 8);
    EXPECT_LE(*std::max_element(end.begin(), end.end()), 1.1 * bound + 0.1) << "graph " << graph;
  }
}

}  // namespace
}  // namespace magister
