// The order of the reads here and in tasks/ is the order of the resolved experiment.
// Two tasks of one experiment may not share a name, because they would share a results file.
#include "magister/app/experiment.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "app/on_rank_zero.h"
#include "magister/core/error.h"
#include "magister/experiment/task_paths.h"

namespace magister {

Experiment Experiment::load(const Communicator& world, const std::string& path,
                            const std::vector<std::string>& overrides, TaskKinds kinds) {
  std::string text;
  on_rank_zero(world, [&] {
    text = ConfigDocument::read_file(path);
    return ExitCode::kDone;
  });
  world.broadcast(text, 0);
  return Experiment(text, path, overrides, kinds);
}

Experiment::Experiment(const std::string& text, const std::string& source, const std::vector<std::string>& overrides,
                       TaskKinds kinds)
    : document_(std::make_unique<ConfigDocument>(text, source, overrides)) {
  document_->expand_groups("tasks");
  ConfigNode root = document_->root();
  read(root, kinds);
  document_->finish();
}

Experiment::Experiment(std::unique_ptr<ConfigDocument> document, TaskKinds kinds) : document_(std::move(document)) {
  ConfigNode root = document_->root();
  read(root, kinds);
}

std::unique_ptr<ConfigDocument> Experiment::rules(TaskKinds kinds) {
  std::string text = "tasks:\n";
  for (const std::string& kind : names_of(kinds)) text += fmt::format("- {{task: {}, name: {}}}\n", kind, kind);
  Experiment experiment(ConfigDocument::for_rules(text), kinds);
  return std::move(experiment.document_);
}

namespace {

bool trains(const Task& task, TaskKinds kinds) {
  const TaskKind* const kind = find_kind(kinds, task.kind());
  return kind != nullptr && kind->trains;
}

// Reports why `model: {task: ...}` of tasks[index] names no earlier task that trains a model.
void reject_model_task(ConfigNode& node, const std::vector<std::unique_ptr<Task>>& tasks, std::size_t index,
                       TaskKinds kinds) {
  const std::string& wanted = tasks[index]->model_section().task;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    if (i < index && trains(*tasks[i], kinds)) names.push_back(tasks[i]->name());
    if (tasks[i]->name() != wanted) continue;
    if (!trains(*tasks[i], kinds))
      return node.reject("task", "{} is a {} task (the weights of a train task are needed); name one of those",
                         printable(wanted), tasks[i]->kind());
    return node.reject("task", "{} {} (its weights are needed when this task begins); put it before this one",
                       printable(wanted), i == index ? "is this task itself" : "comes after this task");
  }
  const std::string nearest = nearest_name(wanted, names);
  node.reject("task", "no train task before this one is named {} (its weights are needed); {}", printable(wanted),
              nearest.empty() ? "put that task before this one, or name a folder with path"
                              : fmt::format("did you mean {}?", printable(nearest)));
}

// Index of the first task with each name.
using TaskPlaces = std::unordered_map<std::string, std::size_t>;

// Checks `needs` of tasks[index]: each must be an earlier task, so there can be no cycle.
void check_needs(ConfigNode& node, const std::vector<std::unique_ptr<Task>>& tasks, const TaskPlaces& places,
                 std::size_t index) {
  for (const std::string& wanted : node.optional_texts("needs")) {
    const auto found = places.find(wanted);
    if (found != places.end() && found->second < index) continue;
    if (found != places.end()) {
      const bool itself = found->second == index;
      node.reject("needs", "{} {} (tasks run in the order of the file); {}", printable(wanted),
                  itself ? "is this task itself" : "comes after this task",
                  itself ? "remove it" : "put it before this one");
      continue;
    }
    std::vector<std::string> earlier;
    for (std::size_t i = 0; i < index; ++i) earlier.push_back(tasks[i]->name());
    const std::string nearest = nearest_name(wanted, earlier);
    node.reject("needs", "no task before this one is named {} (this task would wait for it forever); {}",
                printable(wanted),
                nearest.empty() ? "name one, or remove it" : fmt::format("did you mean {}?", printable(nearest)));
  }
}

// A task that any other key names must be an earlier one: the results of a later task on disk are from an earlier run
// and will be replaced.
void check_named_tasks(ConfigNode& node, const Task& task, const TaskPlaces& places, std::size_t index) {
  const std::vector<std::string> needs = task.needs();
  for (const ConfigNode::Written& value : node.all_values()) {
    const auto found = places.find(value.text);
    if (found == places.end() || found->second < index) continue;
    const std::string key = value.path.substr(node.path().size());
    if (key == ".name" || key == ".model.task" || key.starts_with(".needs")) continue;  // other checks report these
    if (std::find(needs.begin(), needs.end(), value.text) == needs.end()) continue;
    const bool itself = found->second == index;
    node.reject(value, "{} {} (its results are read when this task begins); {}", printable(value.text),
                itself ? "is this task itself" : "comes after this task",
                itself ? "name another task" : "put it before this one");
  }
}

// Any key may name a path below the experiment's own folder; it then means what an earlier task writes there. late:
// called with the name of a task that is not earlier but writes this path, and with true if it is this task itself.
template <typename Late>
void add_needs_of_path(const TaskPath& path, Task& task, const TaskPlaces& places, std::size_t index,
                       const Late& late) {
  const auto add = [&](const std::string& name, std::size_t place) {
    if (place < index) {
      task.also_needs({name});
    } else if (path.is_output_of(name)) {
      late(name, place == index);
    }
  };
  if (const auto found = places.find(path.name()); found != places.end()) add(found->first, found->second);
  if (!path.is_pattern()) return;
  for (const auto& [name, place] : places) {
    if (name != path.name() && path.is_output_of(name)) add(name, place);
  }
}

void add_needs_of_paths(const std::string& folder, ConfigNode& node, Task& task, const TaskPlaces& places,
                        std::size_t index) {
  const auto describe = [](const std::string& name, bool itself) {
    return fmt::format("{} {} and writes that file (it is read when this task begins); {}", printable(name),
                       itself ? "is this task itself" : "comes after this task",
                       itself ? "name another file" : "put it before this one, or name another file");
  };
  for (const ConfigNode::Written& value : node.all_values()) {
    add_needs_of_path(TaskPath(folder, value.text), task, places, index,
                      [&](const std::string& name, bool itself) { node.reject(value, "{}", describe(name, itself)); });
  }
  if (node.has("model")) return;
  add_needs_of_path(TaskPath(folder, task.model_section().path), task, places, index,
                    [&](const std::string& name, bool itself) {
                      node.reject("", "the experiment's model.path: {}", describe(name, itself));
                    });
}

// Reports arguments that set the experiment's model although every task has its own model, or none: they would change
// nothing.
void check_shared_model(ConfigNode& root, const std::vector<std::unique_ptr<Task>>& tasks,
                        const std::vector<ConfigNode>& nodes) {
  std::string own;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    if (!nodes[i].has("model") && !tasks[i]->model_section().none) return;
    if (own.empty() && nodes[i].has("model")) own = nodes[i].path();
  }
  const std::optional<ConfigNode> model = root.optional_section("model");
  for (const ConfigNode::Written& value : model->all_values()) {
    if (!model->place(value.path.substr(model->path().size() + 1)).starts_with("argument ")) continue;
    root.reject(value, "no task uses it (every task has its own model, or none); {}",
                own.empty() ? "remove it" : "change " + own + ".model in the file instead");
  }
}

}  // namespace

void Experiment::read(ConfigNode& root, TaskKinds kinds) {
  config_ = read_experiment_config(root);
  std::map<std::string, std::string> paths;  // task name -> key path of its first use
  std::vector<ConfigNode> nodes;             // in the order of tasks_
  for (ConfigNode& node : root.sections("tasks")) {
    std::unique_ptr<Task> task = read_task(kinds, node, config_);
    if (task == nullptr) continue;
    if (trains(*task, kinds)) {
      config_.trained.emplace_back(task->name(), task->model_section());
      config_.trained.back().second.head_labels = task->traits().head_labels;
    }
    const auto [first, is_new] = paths.emplace(task->name(), node.path());
    if (!is_new) {
      node.reject("name", "the name {} is taken by {} (both would write {}.h5); give each task a name of its own",
                  printable(task->name()), first->second, printable(task->name()));
    }
    config_.earlier.push_back(task->name());
    tasks_.push_back(std::move(task));
    nodes.push_back(node);
  }
  if (config_.has_model && !tasks_.empty()) check_shared_model(root, tasks_, nodes);
  TaskPlaces places;
  for (std::size_t i = 0; i < tasks_.size(); ++i) places.emplace(tasks_[i]->name(), i);
  for (std::size_t i = 0; i < tasks_.size(); ++i) {
    check_needs(nodes[i], tasks_, places, i);
    check_named_tasks(nodes[i], *tasks_[i], places, i);
    add_needs_of_paths(config_.folder(), nodes[i], *tasks_[i], places, i);
    const ModelSection& model = tasks_[i]->model_section();
    if (model.task.empty() || !model.begins_as.empty()) continue;
    ConfigNode section = nodes[i].section("model");
    reject_model_task(section, tasks_, i, kinds);
  }
}

std::string Experiment::identity_yaml_of_task(std::size_t task_index) const {
  return document_->identity_yaml("tasks", task_index);
}

std::string Experiment::results_path(std::size_t task_index) const {
  return fmt::format("{}/{}.h5", config_.folder(), tasks_[task_index]->name());
}

}  // namespace magister
