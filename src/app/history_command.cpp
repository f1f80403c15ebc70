// history: the runs of a folder by their run.jsonl and lock files (past_runs.h).
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>

#include "app/commands.h"
#include "app/on_rank_zero.h"
#include "app/past_runs.h"
#include "magister/core/log.h"
#include "magister/core/units_of_measure.h"
#include "magister/io/results/results_file.h"

namespace magister {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

}  // namespace

std::string aligned(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const std::vector<std::string>& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const std::vector<std::string>& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) line += fmt::format("{:<{}}  ", row[i], widths[i]);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

std::string results_in(const std::string& folder, const TaskRecord& task) {
  return (fs::path(folder) / fs::path(task.results).filename()).string();
}

namespace {

// The process that holds a lock of this start's tasks. Tasks that a later start names are skipped: the later start had
// their locks, or it would have been refused.
std::optional<LockHolder> holder_of(const std::string& folder, std::span<const StartRecord> later,
                                    const StartRecord& start) {
  for (const TaskRecord& task : start.tasks) {
    const auto has_it = [&](const StartRecord& other) {
      return std::any_of(other.tasks.begin(), other.tasks.end(),
                         [&](const TaskRecord& one) { return one.name == task.name; });
    };
    if (task.results.empty() || std::any_of(later.begin(), later.end(), has_it)) continue;
    if (auto holder = lock_holder(results_in(folder, task))) return holder;
  }
  return std::nullopt;
}

// "done", "stopped (signal 15 (Terminated))", "failed (65)", "killed", "running"; "no end" if the log has no end and no
// process is found.
std::string state_of(const StartRecord& start, const std::optional<LockHolder>& holder, bool is_last) {
  if (start.exit_code == 0) return "done";
  if (start.exit_code == static_cast<int>(ExitCode::kStopped))
    return start.stopped_by.empty() ? "stopped" : fmt::format("stopped ({})", printable(start.stopped_by, 40));
  if (start.exit_code) return fmt::format("failed ({})", *start.exit_code);
  if (!holder) return is_last ? "no end" : "killed";
  if (!holder->alive) return "no end";
  return *holder->alive ? "running" : "killed";
}

}  // namespace

double seconds_of(const StartRecord& start, const std::string& state) {
  if (start.exit_code && start.error.empty()) return start.seconds;
  const double until = state == "running" ? 0.0 : seconds_since_time(start.last_sign);
  return std::max(0.0, seconds_since_time(start.begin) - until);
}

namespace {

std::uint64_t tasks_done(const StartRecord& start) {
  return static_cast<std::uint64_t>(std::count_if(start.tasks.begin(), start.tasks.end(),
                                                  [](const TaskRecord& task) { return task.exit_code == 0; }));
}

std::optional<double> last_loss(const StartRecord& start) {
  std::optional<double> loss;
  for (const TaskRecord& task : start.tasks) loss = task.loss ? task.loss : loss;
  return loss;
}

// A job occupies its GPUs all the time, whether or not its tasks compute.
double gpu_hours_of(const StartRecord& start, const std::string& state) {
  return static_cast<double>(start.gpus.size()) * seconds_of(start, state) / 3600;
}

// The peak of a GPU, or without GPUs that of a rank on its host.
std::string shown_peak(const StartRecord& start) {
  const std::uint64_t bytes = start.peak_gpu_bytes > 0 ? start.peak_gpu_bytes : start.peak_host_bytes;
  return bytes == 0 ? "-" : format_bytes(bytes);
}

}  // namespace

std::string shown_loss(std::optional<double> loss) { return loss ? fmt::format("{:.4f}", *loss) : "-"; }

std::vector<Past> starts_of(const std::string& folder) {
  const std::vector<StartRecord> starts = read_run_log(folder + "/run.jsonl");
  std::vector<Past> all;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const std::optional<LockHolder> holder = holder_of(folder, std::span(starts).subspan(i + 1), starts[i]);
    all.push_back({folder, state_of(starts[i], holder, i + 1 == starts.size()), starts[i], holder});
  }
  return all;
}

namespace {

struct PastRuns {
  std::vector<Past> starts;  // the earliest first
  struct Unreadable {
    std::string folder, fault;
  };
  std::vector<Unreadable> unreadable;  // of a later version, or damaged
};

// The run in `folder`, or every run in a folder below it. Throws the first fault if no run can be read.
PastRuns runs_below(const std::string& folder) {
  std::vector<std::string> runs;
  std::error_code error;
  if (fs::exists(folder + "/run.jsonl", error)) {
    runs.push_back(folder);
  } else {
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
      if (fs::exists(entry.path() / "run.jsonl", error)) runs.push_back(entry.path().string());
    }
  }
  MAGISTER_CHECK(!runs.empty(), ExitCode::kInputOutput,
                 "{}: no run.jsonl in it or in a folder of it (every run writes one, so none was made here); name "
                 "output.directory of an experiment, or a run's folder",
                 printable(folder));
  std::sort(runs.begin(), runs.end());
  PastRuns all;
  ExitCode code = ExitCode::kDone;
  for (const std::string& run : runs) {
    try {
      for (Past& past : starts_of(run)) all.starts.push_back(std::move(past));
    } catch (const Error& error) {
      if (all.unreadable.empty()) code = error.code();
      all.unreadable.push_back({run, error.what()});
    }
  }
  if (all.unreadable.size() == runs.size()) throw Error(code, all.unreadable.front().fault);
  std::stable_sort(all.starts.begin(), all.starts.end(),
                   [](const Past& a, const Past& b) { return a.start.begin < b.start.begin; });
  return all;
}

}  // namespace

Json json_of(const Past& past) {
  const StartRecord& start = past.start;
  Json out = {{"run", past.folder},
              {"name", start.name},
              {"begin", start.begin},
              {"state", past.state},
              {"ranks", start.ranks},
              {"tasks", start.tasks.size()},
              {"tasks_done", tasks_done(start)},
              {"tokens", start.tokens()},
              {"written_tokens", start.written_tokens()},
              {"seconds", seconds_of(start, past.state)},
              {"gpus", start.gpus.size()},
              {"gpu_hours", gpu_hours_of(start, past.state)}};
  if (start.peak_host_bytes > 0) out["peak_host_bytes"] = start.peak_host_bytes;
  if (start.peak_gpu_bytes > 0) out["peak_gpu_bytes"] = start.peak_gpu_bytes;
  if (const auto loss = last_loss(start)) out["loss"] = *loss;
  if (!start.error.empty()) out["error"] = start.error;
  return out;
}

ExitCode history_command(Invocation& call) {
  return on_rank_zero(call.world, [&] {
    const PastRuns all = runs_below(call.line.positional("DIR"));
    if (call.line.has("--json")) {
      Json starts = Json::array(), unreadable = Json::array();
      for (const Past& past : all.starts) starts.push_back(json_of(past));
      for (const auto& [folder, fault] : all.unreadable) unreadable.push_back({{"run", folder}, {"error", fault}});
      say(Json{{"starts", starts}, {"unreadable", unreadable}}.dump(-1, ' ', false, Json::error_handler_t::replace) +
          "\n");
      return ExitCode::kDone;
    }
    std::vector<std::vector<std::string>> rows = {
        {"STARTED (UTC)", "RUN", "RANKS", "STATE", "TASKS", "TOKENS", "WRITTEN", "LOSS", "TIME", "GPU-HOURS", "PEAK"}};
    for (const Past& past : all.starts) {
      const StartRecord& start = past.start;
      rows.push_back({shown_time(printable(start.begin, 30)), printable(start.name, 60), std::to_string(start.ranks),
                      past.state, fmt::format("{}/{}", tasks_done(start), start.tasks.size()),
                      std::to_string(start.tokens()), std::to_string(start.written_tokens()),
                      shown_loss(last_loss(start)), format_duration(seconds_of(start, past.state)),
                      start.gpus.empty() ? "-" : fmt::format("{:.2f}", gpu_hours_of(start, past.state)),
                      shown_peak(start)});
    }
    for (const auto& [folder, fault] : all.unreadable)
      rows.push_back({"-", printable(fs::path(folder).filename().string(), 60), "-", "unreadable", "-", "-", "-", "-",
                      "-", "-", "-"});
    say(aligned(rows));
    for (const auto& [folder, fault] : all.unreadable) log_warning("{}", fault);
    return ExitCode::kDone;
  });
}

}  // namespace magister
