// The registry of tasks: which kinds an experiment may name, and how an entry of `tasks:` becomes one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "magister/core/config.h"
#include "magister/run/task.h"

namespace magister {

// All kinds that `task:` may name.
std::vector<std::string> task_kinds();
// Reads one entry of `tasks:`. Faults go to the node; the task is null when its kind is unknown.
std::unique_ptr<Task> read_task(ConfigNode& node, const ExperimentConfig& experiment);

}  // namespace magister
