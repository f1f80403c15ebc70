// The monitor of a run: sampling on every rank, events in run.jsonl, and what Prometheus reads.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "magister/parallel/communicator.h"

namespace magister {

class Monitor;
class RunLog;

class RunMonitor {
 public:
  // folder: the run's; metrics: the argument of --metrics, an address or a path that ends in .prom; empty: none. The
  // GPUs that a rank sees are divided evenly over the ranks of its host that see the same ones. Collective over world.
  RunMonitor(const Communicator& world, const std::string& run, const std::string& folder, const std::string& start,
             const std::string& metrics, RunLog& log);
  ~RunMonitor();  // local
  RunMonitor(const RunMonitor&) = delete;
  RunMonitor& operator=(const RunMonitor&) = delete;

  Monitor& monitor();

  // Writes the event "usage" of the whole run, which names no task. Collective over world.
  void report();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace magister
