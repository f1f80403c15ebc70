// RunLog: run.jsonl, one JSON object an event, appended over restarts. Volatile facts (dates, hosts, timings, ranks)
// belong here and never into a results file.
// Every line: {"schema": 1, "time": "2025-01-31T12:00:00.000Z", "event": "...", ...}
#pragma once

#include <cstdint>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>

namespace magister {

class RunLog {
 public:
  static constexpr int kSchema = 1;

  RunLog() = default;  // writes nothing (every rank but 0, `plan`)
  // Opens for appending and makes the folder; a link, a folder or a device of that name is refused. Throws Error(kInputOutput).
  explicit RunLog(const std::string& path);
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  // One event with its fields (an object) in order. Thread-safe. A full disk ends nothing here, for the results are worth
  // more than their log: the first loss is a warning, the number of them is asked for at the run's end.
  void event(const std::string& name, const nlohmann::ordered_json& fields) noexcept;
  std::uint64_t num_lost() const noexcept { return num_lost_; }

 private:
  void append(const std::string& line);

  std::string path_;
  int descriptor_ = -1;
  std::mutex mutex_;
  std::uint64_t num_lost_ = 0;
};

}  // namespace magister
