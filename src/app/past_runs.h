// The starts of a run, from its run.jsonl and the locks of its results, for history and status. They only read and
// never lock, so they do not disturb a running run. Local.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/run_record.h"
#include "magister/io/results/results_file.h"

namespace magister {

struct Past {
  std::string folder;
  std::string state;  // "done", "stopped (signal 15 (Terminated))", "failed (65)", "killed", "running", "no end"
  StartRecord start;
  std::optional<LockHolder> holder;
};

// All starts of the run in `folder`, the earliest first. Throws as read_run_log() does.
std::vector<Past> starts_of(const std::string& folder);
// Seconds until now for a running start, until the last event for one that was killed.
double seconds_of(const StartRecord& start, const std::string& state);
// One start as JSON, for programs.
nlohmann::ordered_json json_of(const Past& past);

// The path of a task's results file, next to the log, since a run's folder may have been moved.
std::string results_in(const std::string& folder, const TaskRecord& task);
std::string shown_loss(std::optional<double> loss);
// A table with left-aligned columns, each as wide as its widest cell.
std::string aligned(const std::vector<std::vector<std::string>>& rows);

}  // namespace magister
