// The key `task` of an entry, and what a list of kinds knows together.
#include "magister/run/task_kinds.h"

namespace magister {

std::vector<std::string> names_of(TaskKinds kinds) {
  std::vector<std::string> names;
  for (const TaskKind& kind : kinds) names.emplace_back(kind.name);
  return names;
}

std::vector<ResultsSchema> schemas_of(TaskKinds kinds) {
  std::vector<ResultsSchema> schemas;
  for (const TaskKind& kind : kinds) {
    if (kind.schema != nullptr) schemas.push_back(*kind.schema);
  }
  return schemas;
}

std::unique_ptr<Task> read_task(TaskKinds kinds, ConfigNode& node, const ExperimentConfig& experiment) {
  const std::string name = node.choice("task", names_of(kinds));
  for (const TaskKind& kind : kinds) {
    if (name == kind.name) return kind.read(node, experiment);
  }
  node.abandon();
  return nullptr;
}

}  // namespace magister
