// TaskKind: what the program must know of a kind of task. tasks/registry.cpp lists the built-in kinds; main() hands the
// list to the application, so that another program can add kinds.
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
  const char* name;  // the value of `task:`
  // Makes a task from an entry of `tasks:`. Faults are added to the node.
  std::unique_ptr<Task> (*read)(ConfigNode& node, const ExperimentConfig& experiment);
  const ResultsSchema* schema = nullptr;  // of its results; null: `check` cannot check them
  // It writes the folder <folder>/<task name> with a trained model, which `model: {task: ...}` of later tasks names.
  bool trains = false;
  // Its results depend on the seed, so a task may have a seed of its own.
  bool draws = false;
  // Task::summarize() makes files in addition to its results.
  bool has_summary = false;
  // Its progress is counted in steps, which checkpoints next to the results record, and not in units: path of the
  // column that has one row per step. null: in units.
  const char* steps_column = nullptr;
  // Formats of its own that `export` offers; those of tables (kTableFormats) are always offered.
  std::span<const ExportFormat> exports{};
};
using TaskKinds = std::span<const TaskKind>;

// TaskKind::read for a task whose constructor takes its config.
template <typename TaskOfKind, auto read_config>
std::unique_ptr<Task> read_as(ConfigNode& node, const ExperimentConfig& experiment) {
  return std::make_unique<TaskOfKind>(read_config(node, experiment));
}

// Null if there is no kind of this name.
const TaskKind* find_kind(TaskKinds kinds, std::string_view name);

// In the order of the list.
std::vector<std::string> names_of(TaskKinds kinds);
std::vector<ResultsSchema> schemas_of(TaskKinds kinds);
// The formats of tables and the own ones of all kinds; of formats with one name the first.
std::vector<ExportFormat> exports_of(TaskKinds kinds);

// The kind of task that wrote the results, by their root attribute `format`. Null: none of these.
const TaskKind* kind_of(TaskKinds kinds, const ResultsReader& file);
// Null if there is no format of this name.
const ExportFormat* find_format(std::span<const ExportFormat> formats, std::string_view name);

// Reads a task. Null if `task` is missing or names no known kind; the fault is then added to the node. While the task
// is read, experiment.seed is the task's own; it is restored before this function returns.
std::unique_ptr<Task> read_task(TaskKinds kinds, ConfigNode& node, ExperimentConfig& experiment);

}  // namespace magister
