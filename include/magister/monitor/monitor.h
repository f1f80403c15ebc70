// Monitor: a thread of each rank that samples the process, its host and its GPUs every few seconds, while the rank
// computes. It communicates with no other rank: it writes the rank's state into the run's folder (rank_states.h), and
// nothing that is computed depends on it. It measures its own CPU time; if samples should take more than 0.1 % of a
// core, they are taken less often.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace magister {

struct WatchedGpu {
  int index = 0;  // of the CUDA runtime in this process
  std::string uuid, pci, name;
};

struct MonitorSettings {
  std::string folder;       // <run>/monitor; it is made if it is missing
  std::string start;        // RunLog::start()
  int rank = 0, ranks = 1;  // in the whole job, as MPI counts
  std::vector<WatchedGpu> gpus{};
  double seconds = 5;          // between samples
  double series_seconds = 60;  // between the means that go into "minute" and on_series
  std::string textfile;        // also written at every sample, in the format of Prometheus; empty: none
  std::string textfile_host;   // only ranks of this host go into it
  std::string run;             // name of the run, for textfile
  std::function<void(const std::string&)> on_fault{};  // a fatal fault of a GPU; called on the monitor's thread
  // Called every series_seconds with {"seconds", "ranks": [{"rank", "host", "values", "gpus"}]}: means of all ranks
  // whose state is in the folder. Empty: this rank does not collect them. Called on the monitor's thread.
  std::function<void(const nlohmann::ordered_json&)> on_series{};
};

class Monitor {
  struct Window;

 public:
  explicit Monitor(MonitorSettings settings);
  ~Monitor();  // ends the thread and writes the last state; local
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  // A time of which statistics are wanted: that of the whole run, or that in which a task computes on this rank.
  // Watches may lie within each other; the state names the task of the last one that has begun and is not over.
  class Watch {
   public:
    // task: empty for the whole run. place: where the task is, such as "phase compute, unit 3"; called from the
    // monitor's thread until the end of this object. monitor may be null: then nothing is done.
    Watch(Monitor* monitor, const std::string& task, std::function<std::string()> place);
    ~Watch();  // a task's progress is forgotten
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

    // Statistics since the beginning, with a last sample: {"samples", "values": {name: {"mean", "p5", "p95", "max"}},
    // "gpus": [{"index", "uuid", "whole_uuid", "values"}]}; null without a monitor.
    nlohmann::ordered_json summary() const;

   private:
    Monitor* monitor_;
    std::unique_ptr<Window> window_;
  };

  // The progress of the task that this rank leads: names of task_metrics(), "task", and "rank_rates":
  // [{"rank", "tokens_per_second"}].
  void show_progress(const nlohmann::ordered_json& progress);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace magister
