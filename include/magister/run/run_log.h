// RunLog: run.jsonl, one JSON object an event, appended over restarts. Volatile facts (dates, hosts, timings, ranks)
// belong here and never into a results file.
// Every line: {"schema": 1, "time": "2025-01-31T12:00:00.000Z", "start": "node7-4711-6442e1f0a3b21", "event": "...", ...}; start: whose event
// it is, for several starts may write at once. A log of an earlier version has none.
#pragma once

#include <cstdint>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>

#include "magister/core/file_descriptor.h"

namespace magister {

class RunLog {
 public:
  static constexpr int kSchema = 1;

  RunLog() = default;  // writes nothing (every rank but 0, `plan`)
  // Opens for appending and makes the folder; a link, a folder or a device of that name is refused. start: whose events they
  // are; empty: of one of its own. Throws Error(kInputOutput).
  explicit RunLog(const std::string& path, const std::string& start = "");
  ~RunLog() = default;
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  // One event with its fields (an object) in order. Thread-safe. A full disk ends nothing here, for the results are worth
  // more than their log: the first loss is a warning, the number of them is asked for at the run's end.
  void event(const std::string& name, const nlohmann::ordered_json& fields) noexcept;
  std::uint64_t num_lost() const noexcept { return num_lost_; }
  const std::string& start() const noexcept { return start_; }  // empty where nothing is written

 private:
  void append(const std::string& line);

  std::string path_, start_;
  FileDescriptor descriptor_;
  std::mutex mutex_;
  std::uint64_t num_lost_ = 0;
};

}  // namespace magister
