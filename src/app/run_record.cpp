// Reads run.jsonl line by line, since a run of weeks writes a line every half minute.
#include "app/run_record.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "magister/core/error.h"
#include "magister/run/run_log.h"

namespace magister {
namespace {

using nlohmann::json;

// A member of this type, or the fallback: an odd line in the log is no reason to show nothing.
template <typename T>
T member(const json& event, const char* key, T fallback) {
  const auto found = event.find(key);
  if (found == event.end()) return fallback;
  if constexpr (std::is_same_v<T, std::string>) {
    return found->is_string() ? found->get<std::string>() : fallback;
  } else if constexpr (std::is_same_v<T, std::uint64_t>) {
    return found->is_number_unsigned() ? found->get<std::uint64_t>() : fallback;
  } else {
    return found->is_number() ? found->get<T>() : fallback;
  }
}

// A start that computed nothing logs rates of 0 in its last phases; they do not replace earlier rates.
void add_rates(TaskRecord& task, const json& event) {
  const auto add = [&](const char* key, double& rate) {
    if (const double reported = member(event, key, 0.0); reported > 0) rate = reported;
  };
  add("tokens_per_second", task.tokens_per_second);
  add("written_tokens_per_second", task.written_tokens_per_second);
}

// Events of a training: its begin, a finished step, a saved state.
void add_steps(TaskRecord& task, const json& event, bool begins) {
  task.counts_steps = task.counts_steps || event.contains("steps");
  task.units = member(event, "steps", task.units);
  task.done = member(event, "step", task.done);
  if (begins) task.done_before = task.done;
  task.tokens = member(event, "tokens", task.tokens);
  if (const auto loss = event.find("loss"); loss != event.end() && loss->is_number()) task.loss = loss->get<double>();
  add_rates(task, event);
}

StartRecord begun(const json& event) {
  StartRecord start;
  start.id = member(event, "start", std::string());
  start.name = member(event, "name", std::string());
  start.begin = member(event, "time", std::string());
  start.ranks = member(event, "ranks", 0);
  start.fresh = event.contains("fresh") && event["fresh"] == true;
  const auto tasks = event.find("tasks");
  if (tasks == event.end() || !tasks->is_array()) return start;
  for (const json& task : *tasks) {
    if (!task.is_object()) continue;
    TaskRecord& record = start.tasks.emplace_back();
    record.name = member(task, "task", std::string());
    record.kind = member(task, "kind", std::string());
    record.results = member(task, "results", std::string());
  }
  return start;
}

TaskRecord& task_of(StartRecord& start, const json& event) {
  const std::string name = member(event, "task", std::string());
  const auto found =
      std::find_if(start.tasks.begin(), start.tasks.end(), [&](const TaskRecord& task) { return task.name == name; });
  if (found != start.tasks.end()) return *found;
  start.tasks.emplace_back().name = name;  // a log without the list of tasks
  return start.tasks.back();
}

void add_task_event(StartRecord& start, const std::string& kind, const json& event) {
  TaskRecord& task = task_of(start, event);
  if (kind == "task") {
    task.kind = member(event, "kind", task.kind);
    task.results = member(event, "results", task.results);
  } else if (kind == "plan") {
    task.samples = member(event, "samples", task.samples);
    task.units = member(event, "units", task.units);
  } else if (kind == "start") {
    task.begin = member(event, "time", std::string());
    task.units = member(event, "units", task.units);
    task.done = task.done_before = task.units - std::min(task.units, member(event, "pending_units", task.units));
  } else if (kind == "progress") {
    task.done = member(event, "units_done", task.done);
    // A start that is killed never logs the task's phases, which have the final numbers.
    task.tokens = std::max(task.tokens, member(event, "tokens_done", std::uint64_t{0}));
    task.written_tokens = std::max(task.written_tokens, member(event, "written_tokens", std::uint64_t{0}));
    add_rates(task, event);
  } else if (kind == "step" || kind == "steps" || kind == "state") {
    add_steps(task, event, kind == "steps");
  } else if (kind == "phases") {
    task.tokens = member(event, "tokens", task.tokens);
    task.written_tokens = member(event, "written_tokens", task.written_tokens);
    add_rates(task, event);
  } else if (kind == "error") {
    task.error = member(event, "message", std::string("unknown"));
  } else if (kind == "task_skipped") {
    task.left_out = true;
  } else if (kind == "task_end") {
    task.exit_code = member(event, "exit_code", 0);
    task.seconds = member(event, "seconds", 0.0);
    if (*task.exit_code == 0) task.done = task.units;
  }
}

// Adds the GPUs of the event "start", and the peak memory of "memory" or of the run's "end".
void add_devices(StartRecord& start, const json& event) {
  const auto devices = event.find("devices"), peaks = event.find("peak_memory");
  if (devices != event.end() && devices->is_array()) {
    for (const json& device : *devices) {
      if (device.is_object() && device.contains("uuid")) start.gpus.insert(member(device, "uuid", std::string()));
    }
  }
  if (peaks == event.end() || !peaks->is_array()) return;
  for (const json& rank : *peaks) {
    if (!rank.is_object()) continue;
    start.peak_host_bytes = std::max(start.peak_host_bytes, member(rank, "host_bytes", std::uint64_t{0}));
    const auto gpus = rank.find("gpus");
    if (gpus == rank.end() || !gpus->is_array()) continue;
    for (const json& gpu : *gpus) {
      if (gpu.is_object())
        start.peak_gpu_bytes = std::max(start.peak_gpu_bytes, member(gpu, "reserved_bytes", std::uint64_t{0}));
    }
  }
}

// Finds the start by its id, since several starts may log at the same time. In a log of an earlier version all ids are
// empty, and the event belongs to the last start.
StartRecord* start_of(std::vector<StartRecord>& starts, const json& event) {
  const std::string id = member(event, "start", std::string());
  const auto found =
      std::find_if(starts.rbegin(), starts.rend(), [&](const StartRecord& start) { return start.id == id; });
  return found == starts.rend() ? nullptr : &*found;
}

void add_event(std::vector<StartRecord>& starts, const json& event) {
  const std::string kind = member(event, "event", std::string());
  if (kind == "run") starts.push_back(begun(event));
  StartRecord* const start = start_of(starts, event);
  if (start == nullptr) return;  // from another command, or the log's beginning is cut off
  if (kind == "end") {
    start->exit_code = member(event, "exit_code", 0);
    start->stopped_by = member(event, "stopped_by", std::string());
    start->seconds = member(event, "seconds", 0.0);
    for (const TaskRecord& task : start->tasks) {
      if (start->error.empty()) start->error = task.error;
    }
  } else if (kind == "error" && !event.contains("task")) {
    start->error = member(event, "message", std::string("unknown"));
    start->exit_code = member(event, "exit_code", static_cast<int>(ExitCode::kInternal));
  } else if (event.contains("task")) {
    add_task_event(*start, kind, event);
  }
  add_devices(*start, event);
  start->last_sign = member(event, "time", start->last_sign);
  // After a task's fault the run continues with other tasks. If no event follows, a single rank had the fault and ended
  // the job.
  if (kind == "monitor") return;  // a thread of its own writes these, also after a fault
  start->last_fault.reset();
  if (kind == "error" && event.contains("task"))
    start->last_fault = {member(event, "task", std::string()),
                         member(event, "exit_code", static_cast<int>(ExitCode::kInternal))};
}

void end_by_fault(StartRecord& start) {
  if (start.exit_code || !start.last_fault) return;
  start.exit_code = start.last_fault->second;
  for (TaskRecord& task : start.tasks) {
    if (task.name != start.last_fault->first) continue;
    task.exit_code = start.exit_code;
    start.error = task.error;
  }
}

}  // namespace

std::uint64_t StartRecord::tokens() const {
  return std::accumulate(tasks.begin(), tasks.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const TaskRecord& task) { return sum + task.tokens; });
}

std::uint64_t StartRecord::written_tokens() const {
  return std::accumulate(tasks.begin(), tasks.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const TaskRecord& task) { return sum + task.written_tokens; });
}

namespace {

// Advice for a folder without run.jsonl: the run that was probably meant.
std::string run_meant_by(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path folder = fs::path(path).parent_path();
  if (folder.is_relative() && fs::exists("runs" / folder / "run.jsonl", error))
    return "did you mean runs/" + printable(folder.string()) + "?";
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (fs::exists(entry.path() / "run.jsonl", error))
      return "name one of the runs in it, which magister history " + printable(folder.string()) + " lists";
  }
  return "name a run's folder, output.directory/name";
}

}  // namespace

std::vector<StartRecord> read_run_log(const std::string& path) {
  std::ifstream file(path);
  const std::string fault = std::strerror(errno);
  MAGISTER_CHECK(file.is_open(), ExitCode::kInputOutput, "{}: cannot be read: {} (it is the log of the run); {}",
                 printable(path), fault, run_meant_by(path));
  std::vector<StartRecord> starts;
  for (std::string line; std::getline(file, line);) {
    const json event = json::parse(line, nullptr, false);
    if (!event.is_object()) continue;
    const int schema = member(event, "schema", RunLog::kSchema);
    MAGISTER_CHECK(schema <= RunLog::kSchema, ExitCode::kData,
                   "{}: events of version {} (this program knows {}); use the program that wrote them", printable(path),
                   schema, RunLog::kSchema);
    add_event(starts, event);
  }
  MAGISTER_CHECK(!file.bad(), ExitCode::kInputOutput,
                 "{}: reading ended early: {} (the table would be of a part); try again", printable(path),
                 std::strerror(errno));
  for (StartRecord& start : starts) end_by_fault(start);
  return starts;
}

std::string shown_time(const std::string& time) {
  std::string shown = time.substr(0, 19);
  if (shown.size() > 10 && shown[10] == 'T') shown[10] = ' ';
  return shown;
}

double seconds_since_time(const std::string& time) {
  std::tm utc{};
  if (::strptime(time.c_str(), "%Y-%m-%dT%H:%M:%S", &utc) == nullptr) return 0;
  const auto then = std::chrono::system_clock::from_time_t(::timegm(&utc));
  return std::max(0.0, std::chrono::duration<double>(std::chrono::system_clock::now() - then).count());
}

}  // namespace magister
