// The contents of run.jsonl: each start of a run with the state of its tasks. history and status show it.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace magister {

struct TaskRecord {
  std::string name, kind, results;  // results: the file's path as the run logged it
  std::string begin;                // time at which its units began; empty: not yet
  std::optional<int> exit_code;     // set when it has ended
  std::string error;                // set if it failed
  bool left_out = false;            // a task that it needs has failed
  // For a training with counts_steps a unit is a step.
  std::uint64_t units = 0, done_before = 0, done = 0, samples = 0;
  // False for a training's log of an earlier version, which counts units, all committed at the end.
  bool counts_steps = false;
  std::uint64_t tokens = 0, written_tokens = 0;  // of this start: tokens of its units, and tokens of generated texts
  // Tokens per second of its units (the prompts, if it generates texts); seconds: its duration, known at its end.
  double tokens_per_second = 0, written_tokens_per_second = 0, seconds = 0;
  std::optional<double> loss;  // the last one in the log
};

struct StartRecord {
  std::string id;                      // empty: a log of an earlier version
  std::string name, begin, last_sign;  // times as in the log, UTC
  std::string stopped_by, error;
  int ranks = 0;
  bool fresh = false;  // started with --fresh: earlier results are put aside when their task begins
  std::vector<TaskRecord> tasks;
  std::set<std::string> gpus;                             // by UUID
  std::uint64_t peak_host_bytes = 0, peak_gpu_bytes = 0;  // largest values of a rank and of a GPU; 0: not logged
  std::optional<int> exit_code;                           // none: still running, or killed
  double seconds = 0;                                     // duration, known at its end
  // Task and exit code, if the last event is a task's error.
  std::optional<std::pair<std::string, int>> last_fault;

  std::uint64_t tokens() const;
  std::uint64_t written_tokens() const;
};

// Reads all starts in order. Lines that are cut off or are no events are skipped, since a kill may leave one. Throws
// Error(kInputOutput) for a file that cannot be read and Error(kData) for one of a later version. Local.
std::vector<StartRecord> read_run_log(const std::string& path);

// "2026-11-22T09:01:02.345Z" -> "2026-11-22 09:01:02".
std::string shown_time(const std::string& time);
// Seconds from `time` to now; 0 if the text is no time.
double seconds_since_time(const std::string& time);

}  // namespace magister
