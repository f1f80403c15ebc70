// The jobs of the service, in <root>/jobs.sqlite. Every change is durable before the function returns. Thread-safe.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "serve/database.h"

namespace magister {

enum class JobState {
  kQueued,     // waits for its turn
  kRunning,    // its process was started, or is about to be
  kStopping,   // it was asked to stop, and still runs
  kDone,       // exit code 0
  kFailed,     // another exit code, or the process could not be started
  kCancelled,  // it was asked to stop and has ended; `resume` queues it again
};
// "queued"; the strings of the database and of the JSON.
const char* name_of(JobState state);
std::span<const JobState> all_states();

struct Job {
  std::int64_t id = 0;  // from 1
  std::string name;     // of the experiment
  std::string owner;    // of the token that submitted it; empty: no tokens are asked for
  std::string experiment;
  JobState state = JobState::kQueued;
  double created = 0;                    // seconds since 1970
  std::optional<double> started, ended;  // of the newest start
  std::optional<int> exit_code;
  std::int64_t pid = 0;  // 0: none is known
  int starts = 0;
  std::string message;  // why it failed, if the service knows
};

class JobStore {
 public:
  explicit JobStore(const std::string& path);

  // Adds a queued job. key: of the request's Idempotency-Key; a second job of the same owner and key is not added, and
  // the first one is returned. Empty: none.
  Job add(const std::string& name, const std::string& owner, const std::string& experiment, const std::string& key);
  std::optional<Job> find(std::int64_t id) const;
  // At most `limit` jobs with an id below `before` (0: any), the newest first, without their experiments.
  std::vector<Job> newest(std::int64_t before, std::int64_t limit) const;
  std::vector<Job> in_state(JobState state, std::int64_t limit) const;  // the oldest first
  std::int64_t count(JobState state) const;

  // A text that is kept under a name; no value: none was set.
  std::optional<std::string> setting(const std::string& name) const;
  void set_setting(const std::string& name, const std::string& text);

  // Each returns false, and changes nothing, if the job is in none of the states from which that is possible.
  bool begin(std::int64_t id);  // queued -> running
  void set_pid(std::int64_t id, std::int64_t pid);
  bool ask_to_stop(std::int64_t id);  // queued -> cancelled, running -> stopping
  bool requeue(std::int64_t id);      // failed, cancelled -> queued
  bool put_back(std::int64_t id);     // running -> queued: its process ended with the service
  // running, stopping -> done, failed, cancelled.
  bool end(std::int64_t id, JobState state, std::optional<int> exit_code, const std::string& message);

 private:
  bool change(const char* sql, std::int64_t id);
  mutable std::mutex mutex_;
  Database database_;
};

}  // namespace magister
