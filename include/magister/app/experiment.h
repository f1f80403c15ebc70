// Experiment: the YAML file as tasks. World rank 0 reads the file and every rank parses the same text, so all ranks
// report the same errors without communicating.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "magister/core/config.h"
#include "magister/experiment/config.h"
#include "magister/parallel/communicator.h"
#include "magister/run/task.h"
#include "magister/run/task_kinds.h"

namespace magister {

class Experiment {
 public:
  // Throws Error(kConfig) with every fault, the same on every rank. Collective over world.
  static Experiment load(const Communicator& world, const std::string& path, const std::vector<std::string>& overrides,
                         TaskKinds kinds);
  // Reads a text instead of a file, for tests. Local.
  Experiment(const std::string& text, const std::string& source, const std::vector<std::string>& overrides,
             TaskKinds kinds);

  // The rules of experiment files; the list `tasks` has one entry of each kind, in their order. Local.
  static std::unique_ptr<ConfigDocument> rules(TaskKinds kinds);

  const ExperimentConfig& config() const { return config_; }
  const std::vector<std::unique_ptr<Task>>& tasks() const { return tasks_; }

  // The whole experiment, as --print-config shows it.
  std::string resolved_yaml() const { return document_->resolved_yaml(); }
  // The part that decides the task's results: this task alone, without the keys outside of its identity. Stored in the
  // results file.
  std::string identity_yaml_of_task(std::size_t task_index) const;
  // <output.directory>/<name>/<task name>.h5
  std::string results_path(std::size_t task_index) const;

 private:
  Experiment(std::unique_ptr<ConfigDocument> document, TaskKinds kinds);  // for rules()
  void read(ConfigNode& root, TaskKinds kinds);
  std::unique_ptr<ConfigDocument> document_;
  ExperimentConfig config_;
  std::vector<std::unique_ptr<Task>> tasks_;
};

}  // namespace magister
