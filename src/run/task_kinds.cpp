// Reads the key `task` of an entry; see task_kinds.h.
#include "magister/run/task_kinds.h"

#include <algorithm>

namespace magister {

const TaskKind* find_kind(TaskKinds kinds, std::string_view name) {
  const auto found = std::find_if(kinds.begin(), kinds.end(), [&](const TaskKind& kind) { return kind.name == name; });
  return found == kinds.end() ? nullptr : &*found;
}

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

std::vector<ExportFormat> exports_of(TaskKinds kinds) {
  std::vector<ExportFormat> formats(std::begin(kTableFormats), std::end(kTableFormats));
  for (const TaskKind& kind : kinds) {
    for (const ExportFormat& format : kind.exports) {
      if (find_format(formats, format.name) == nullptr) formats.push_back(format);
    }
  }
  return formats;
}

const TaskKind* kind_of(TaskKinds kinds, const ResultsReader& file) {
  const AttributeValue* const value = file.attribute("format");
  const auto* const format = value == nullptr ? nullptr : std::get_if<std::string>(value);
  constexpr std::string_view kOurs = "magister.";
  return format != nullptr && format->starts_with(kOurs) ? find_kind(kinds, format->substr(kOurs.size())) : nullptr;
}

const ExportFormat* find_format(std::span<const ExportFormat> formats, std::string_view name) {
  const auto found =
      std::find_if(formats.begin(), formats.end(), [&](const ExportFormat& format) { return format.name == name; });
  return found == formats.end() ? nullptr : &*found;
}

std::unique_ptr<Task> read_task(TaskKinds kinds, ConfigNode& node, ExperimentConfig& experiment) {
  const std::string name = node.choice("task", names_of(kinds));
  for (const TaskKind& kind : kinds) {
    if (name != kind.name) continue;
    const std::uint64_t shared = experiment.seed;
    const auto own = kind.draws ? node.optional_integer("seed", 0) : std::nullopt;
    if (own) experiment.seed = static_cast<std::uint64_t>(*own);
    std::unique_ptr<Task> task = kind.read(node, experiment);
    experiment.seed = shared;
    task->also_needs(node.optional_texts("needs"));
    node.outside_identity("needs");  // decides when a task runs, not what it computes
    node.also_called("needs", {"depends_on", "after", "dependencies"});
    return task;
  }
  node.abandon();
  return nullptr;
}

}  // namespace magister
