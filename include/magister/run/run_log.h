// RunLog: run.jsonl, one JSON object for each event, appended over restarts. Facts that change from run to run (dates,
// hosts, timings, ranks) belong here and never into a results file.
// Every line: {"schema": 1, "time": "2025-01-31T12:00:00.000Z", "start": "node7-4711-6442e1f0a3b21", "event": "...",
// ...}. start identifies the start of the program that wrote the event, because several may write at once. A log of an
// earlier version has no such field.
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

  RunLog() = default;  // writes nothing (every rank except 0, and `plan`)
  // Opens the file for appending and makes its folder; refuses a link, a folder or a device of that name. start: the
  // name of this start; empty: a new one is made. Throws Error(kInputOutput).
  explicit RunLog(const std::string& path, const std::string& start = "");
  ~RunLog() = default;
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  // Writes one event with its fields (an object) in order. Thread-safe. A full disk does not end the run, because the
  // results are worth more than the log: the first lost event causes a warning, and num_lost() is read at the end of
  // the run.
  void event(const std::string& name, const nlohmann::ordered_json& fields) noexcept;
  std::uint64_t num_lost() const noexcept { return num_lost_; }
  const std::string& start() const noexcept { return start_; }  // empty if nothing is written

 private:
  void append(const std::string& line);

  std::string path_, start_;
  FileDescriptor descriptor_;
  std::mutex mutex_;
  std::uint64_t num_lost_ = 0;
};

}  // namespace magister
