// The experiment as typed structs: what the sections that every task shares say, checked and with defaults filled in.
// A task's own keys are in <task>_config.h. Paths are kept as written: relative ones start at the working directory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "magister/core/config.h"
#include "magister/io/dataset.h"
#include "magister/parallel/layout.h"
#include "magister/parallel/unit_tickets.h"

namespace magister {

struct ModelSection {
  std::string path;
  std::string dtype = "auto";         // auto | f32 | bf16 | f16
  std::string quantization = "none";  // none | int8 | int4
};

// How a run goes, not what it computes: never part of the results (see ExperimentConfig and resolved_for_results()).
struct RunSection {
  std::optional<double> max_wall_seconds;  // --max-wall wins over run.max_wall
  Schedule schedule = Schedule::kDynamic;
  double watchdog_seconds = 1800;          // a rank that stays longer in one phase ends the job; 0: no watchdog
};

struct ExperimentConfig {
  std::string name;
  std::uint64_t seed = 0;
  std::string output_directory = "runs";
  ModelSection model;
  LayoutConfig layout;
  RunSection run;

  // <output.directory>/<name>
  std::string folder() const { return output_directory + "/" + name; }
};

// Both read from the experiment's root map; `required` false where every task may carry its own `model:`.
ModelSection read_model(ConfigNode& node, bool required);
// A task's `dataset:` and, where the task has one, its `slice:`.
DatasetConfig read_dataset(ConfigNode& task);
// name, seed, output, layout, run; not tasks, and model only when it is there (a task may carry its own).
ExperimentConfig read_experiment_config(ConfigNode& root);

// Seconds of "HH:MM:SS" (hours may have more digits, minutes and seconds are below 60); nothing for anything else or 0.
std::optional<double> parse_wall_time(const std::string& text);
// [A-Za-z0-9_-]{1,100}: what may become the name of a file or folder.
bool is_plain_name(const std::string& text);

}  // namespace magister
