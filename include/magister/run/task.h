// Task: one step of an experiment, between the experiment's text and its results file. The registry is an explicit list
// (src/tasks/registry.cpp): a new task is one file, one line there, one example in configs/.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "magister/core/error.h"
#include "magister/parallel/communicator.h"
#include "magister/parallel/layout.h"
#include "magister/run/experiment_config.h"

namespace magister {

class RunLog;

// Why a run should stop cleanly before its next unit; set from signal handlers, so only lock-free atomics.
struct StopSign {
  std::atomic<int> signal{0};                  // SIGTERM, SIGINT, SIGUSR1 or SIGUSR2; 0: none
  std::atomic<std::int64_t> deadline_nanoseconds{0};  // steady clock, from --max-wall; 0: none
  bool raised() const;
  // "signal 15 (Terminated)" or "the end of the wall time"; empty when not raised.
  std::string reason() const;
};

// What a task may use of the run it is part of. Equal on all ranks but for `world`.
struct RunContext {
  const Communicator& world;
  const ExperimentConfig& experiment;
  std::string results_path;     // runs/<name>/<task name>.h5
  std::string experiment_yaml;  // for the results file: as resolved, this task alone, without `output` and `run`
  std::string config_yaml;      // for config_sha256: that without names and `slice`, so equal for all parts of a job array
  bool fresh = false;           // --fresh: put an earlier result aside
  const StopSign& stop;
  RunLog& log;
};

// What `plan` prints of a task. Bytes are exact where they follow from the data, else an upper bound.
struct PlanReport {
  std::vector<DeviceRow> devices;
  int num_groups = 0;
  int tp_size = 0;
  std::string model;                 // "llama, 134.5 M parameters, f32"
  std::uint64_t device_bytes = 0;    // memory a device: weights, activations, tiles
  std::vector<std::pair<std::string, std::uint64_t>> device_parts;  // the same by part, in bytes
  std::uint64_t num_samples = 0;
  std::uint64_t num_units = 0;
  std::uint64_t num_units_done = 0;  // committed by an earlier run
  std::uint64_t num_tokens = 0;
  std::uint64_t results_bytes = 0;
  std::uint64_t free_bytes = 0;      // of the results' file system
  std::vector<std::pair<std::string, std::string>> notes;  // more lines, name and value
};

// What a forward pass of a task works on, from its keys alone.
struct PassShape {
  std::uint64_t tokens = 0;           // at most, in one pass
  std::uint64_t sequence_tokens = 0;  // of the longest sequence whose keys and values are kept; 0: none are
  std::uint64_t row_bytes = 0;        // results waiting to be written
};

class Task {
 public:
  virtual ~Task() = default;
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  const std::string& kind() const { return kind_; }  // "teacher_logits"
  const std::string& name() const { return name_; }  // names the results file

  const ModelSection& model_section() const { return model_; }
  virtual PassShape pass_shape() const = 0;

  // Everything but compute, for num_ranks ranks (world.size() unless `plan --ranks N`). Writes nothing.
  // Collective over context.world; the result is complete on rank 0.
  virtual PlanReport plan(RunContext& context, int num_ranks) = 0;
  // Runs or resumes; kDone or kStopped, the same on every rank. Collective over context.world.
  virtual ExitCode run(RunContext& context) = 0;
  // Makes what `run` wrote about complete results again (a judge's summary). context.world is alone.
  virtual void summarize(RunContext& context);

 protected:
  Task(std::string kind, std::string name, ModelSection model)
      : kind_(std::move(kind)), name_(std::move(name)), model_(std::move(model)) {}

 private:
  std::string kind_;
  std::string name_;
  ModelSection model_;
};

}  // namespace magister
