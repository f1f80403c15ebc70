// The starts of a run, by its run.jsonl and the locks of its results, for history and status. They read and never lock, so a run at work is
// not disturbed by who looks at it. Local.
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

// Every start of the run in `folder`, the earliest first. Throws as read_run_log().
std::vector<Past> starts_of(const std::string& folder);
// Until now for a run at work, until the last sign of one that was killed.
double seconds_of(const StartRecord& start, const std::string& state);
// One start, for programs.
nlohmann::ordered_json json_of(const Past& past);

// The results file of a task, beside the log: a run's folder may have been moved since.
std::string results_in(const std::string& folder, const TaskRecord& task);
std::string shown_loss(std::optional<double> loss);
// A column a name, as wide as its widest cell; numbers are not told apart from words.
std::string aligned(const std::vector<std::vector<std::string>>& rows);

}  // namespace magister
