// TaskKind: what the program must know of a kind of tasks. tasks/registry.cpp lists those that are built in; main() hands the list to the
// application, so that a program of one's own may have more.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "magister/core/config.h"
#include "magister/experiment/config.h"
#include "magister/io/results/schema.h"
#include "magister/run/task.h"

namespace magister {

struct TaskKind {
  const char* name;  // what `task:` says
  // An entry of `tasks:` becomes a task. Faults go to the node.
  std::unique_ptr<Task> (*read)(ConfigNode& node, const ExperimentConfig& experiment);
  const ResultsSchema* schema = nullptr;  // of its results; null: `check` does not know them
  // It writes <folder>/<task name>, a model of the config and tokenizer of its own one, which `model: {task: ...}` of later tasks names.
  bool trains = false;
  // What it writes depends on the seed: a task may have its own.
  bool draws = false;
  // Task::summarize() makes something beside its results.
  bool has_summary = false;
  // Its progress is steps, which states beside the results keep, and not units.
  bool counts_steps = false;
};
using TaskKinds = std::span<const TaskKind>;

// TaskKind::read of a task that is made of its config.
template <typename TaskOfKind, auto read_config>
std::unique_ptr<Task> read_as(ConfigNode& node, const ExperimentConfig& experiment) {
  return std::make_unique<TaskOfKind>(read_config(node, experiment));
}

// Null where there is none of this name.
const TaskKind* find_kind(TaskKinds kinds, std::string_view name);

// In the order of the list.
std::vector<std::string> names_of(TaskKinds kinds);
std::vector<ResultsSchema> schemas_of(TaskKinds kinds);

// Null when `task` is missing or names none of them; the node has the fault then. experiment is as before when this returns: while the task is
// read its seed is the task's own.
std::unique_ptr<Task> read_task(TaskKinds kinds, ConfigNode& node, ExperimentConfig& experiment);

}  // namespace magister
