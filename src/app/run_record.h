// What run.jsonl tells of a run: each of its starts and what became of their tasks. history and status show it.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace magister {

struct TaskRecord {
  std::string name, kind, results;  // results: the path of the file as the run was told it
  std::string begin;                // when its units began; empty: not yet
  std::optional<int> exit_code;     // of its end
  std::string error;                // where it failed
  bool left_out = false;            // for what it needs has failed
  std::uint64_t units = 0, done_before = 0, done = 0, samples = 0;  // of training a unit is a step, if it counts_steps
  bool counts_steps = false;  // a log of an earlier version tells of a training's units, which are committed at its end
  std::uint64_t tokens = 0, written_tokens = 0;  // of this start: of its units, and of the texts that it wrote
  // Of its units, which are prompts where it writes texts; seconds: of its end.
  double tokens_per_second = 0, written_tokens_per_second = 0, seconds = 0;
  std::optional<double> loss;  // the last one told
};

struct StartRecord {
  std::string id;                      // empty: of an earlier version
  std::string name, begin, last_sign;  // times as the log has them, UTC
  std::string stopped_by, error;
  int ranks = 0;
  bool fresh = false;  // with --fresh: earlier results are put aside when their task begins
  std::vector<TaskRecord> tasks;
  std::set<std::string> gpus;                             // by UUID
  std::uint64_t peak_host_bytes = 0, peak_gpu_bytes = 0;  // of a rank, and of a GPU, at most; 0: not told
  std::optional<int> exit_code;                           // none: it goes on, or it was killed
  double seconds = 0;                                     // of its end
  std::optional<std::pair<std::string, int>> last_fault;  // task and exit code, where the last event is a task's error

  std::uint64_t tokens() const;
  std::uint64_t written_tokens() const;
};

// In order. Lines that are cut or no events are passed over: a kill can leave one. A file that cannot be read is Error(kInputOutput),
// one of a later version Error(kData). Local.
std::vector<StartRecord> read_run_log(const std::string& path);

// "2026-11-22T09:01:02.345Z" -> "2026-11-22 09:01:02".
std::string shown_time(const std::string& time);
// Seconds from `time` to now; 0 for what is no time.
double seconds_since_time(const std::string& time);

}  // namespace magister
