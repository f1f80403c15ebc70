// RunLog: run.jsonl, one JSON object an event, appended over restarts. Volatile facts (dates, hosts, timings, ranks)
// belong here and never into a results file.
// Every line: {"schema": 1, "time": "2025-01-31T12:00:00.000Z", "event": "...", ...}
#pragma once

#include <cstdio>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>

namespace magister {

class RunLog {
 public:
  static constexpr int kSchema = 1;

  RunLog() = default;  // writes nothing (every rank but 0, `plan`)
  // Opens for appending and makes the folder. Throws Error(kInputOutput).
  explicit RunLog(const std::string& path);

  // One event with its fields (an object) in order. Thread-safe; a failure to write ends nothing (a warning, once).
  void event(const std::string& name, const nlohmann::ordered_json& fields) noexcept;

 private:
  struct Close {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
  };
  std::unique_ptr<std::FILE, Close> file_;
  std::mutex mutex_;
  bool failed_ = false;
};

}  // namespace magister
