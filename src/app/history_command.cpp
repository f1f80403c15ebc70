// history and status: what run.jsonl, the lock files and the results files say of runs. They read and never lock, so a run at work is
// not disturbed by who looks at it.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>

#include "app/commands.h"
#include "app/on_rank_zero.h"
#include "app/run_record.h"
#include "magister/core/log.h"
#include "magister/core/units_of_measure.h"
#include "magister/io/results/results_file.h"
#include "magister/run/results_on_disk.h"

namespace magister {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// A column a name, as wide as its widest cell; numbers are not told apart from words.
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

// The results file of a task, beside the log: a run's folder may have been moved since.
std::string results_in(const std::string& folder, const TaskRecord& task) {
  return (fs::path(folder) / fs::path(task.results).filename()).string();
}

// Of the locks of its tasks. A later start had those that it names, too, for its own, or it would have been refused.
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

// "done", "stopped (SIGTERM)", "failed (65)", "killed", "running"; "no end" where neither an end was told nor a process is seen.
std::string state_of(const StartRecord& start, const std::optional<LockHolder>& holder, bool is_last) {
  if (start.exit_code == 0) return "done";
  if (start.exit_code == static_cast<int>(ExitCode::kStopped))
    return start.stopped_by.empty() ? "stopped" : fmt::format("stopped ({})", printable(start.stopped_by, 40));
  if (start.exit_code) return fmt::format("failed ({})", *start.exit_code);
  if (!holder) return is_last ? "no end" : "killed";
  if (!holder->alive) return "no end";
  return *holder->alive ? "running" : "killed";
}

// Until now for a run at work, until the last sign of one that was killed.
double seconds_of(const StartRecord& start, const std::string& state) {
  if (start.exit_code && start.error.empty()) return start.seconds;
  const double until = state == "running" ? 0.0 : seconds_since_time(start.last_sign);
  return std::max(0.0, seconds_since_time(start.begin) - until);
}

std::uint64_t tasks_done(const StartRecord& start) {
  return static_cast<std::uint64_t>(std::count_if(start.tasks.begin(), start.tasks.end(),
                                                  [](const TaskRecord& task) { return task.exit_code == 0; }));
}

std::optional<double> last_loss(const StartRecord& start) {
  std::optional<double> loss;
  for (const TaskRecord& task : start.tasks) loss = task.loss ? task.loss : loss;
  return loss;
}

std::string shown(std::optional<double> loss) { return loss ? fmt::format("{:.4f}", *loss) : "-"; }

struct Past {
  std::string folder, state;
  StartRecord start;
  std::optional<LockHolder> holder;
};

// Every start of a run, the earliest first.
std::vector<Past> starts_of(const std::string& folder) {
  const std::vector<StartRecord> starts = read_run_log(folder + "/run.jsonl");
  std::vector<Past> all;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const std::optional<LockHolder> holder = holder_of(folder, std::span(starts).subspan(i + 1), starts[i]);
    all.push_back({folder, state_of(starts[i], holder, i + 1 == starts.size()), starts[i], holder});
  }
  return all;
}

struct PastRuns {
  std::vector<Past> starts;  // the earliest first
  struct Unreadable {
    std::string folder, fault;
  };
  std::vector<Unreadable> unreadable;  // of a later version, or not to be read
};

// Of the run in `folder`, or of every run in a folder below it. Throws the first fault where no run can be read.
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
              {"seconds", seconds_of(start, past.state)}};
  if (const auto loss = last_loss(start)) out["loss"] = *loss;
  if (!start.error.empty()) out["error"] = start.error;
  return out;
}

struct TaskState {
  std::string state;  // "done", "running", "to go on", "waiting"
  std::uint64_t units = 0, done = 0;
};

// What this start says of a task whose results do not say it: "" where it says nothing.
std::string told_of(const Past& past, const TaskRecord& task, bool at_work) {
  constexpr int kStopped = static_cast<int>(ExitCode::kStopped);
  if (task.exit_code && *task.exit_code != 0 && *task.exit_code != kStopped)
    return fmt::format("failed ({})", *task.exit_code);
  if (task.left_out) return "left out";
  if (task.exit_code || !task.begin.empty()) return "";
  // Earlier results stand there until it begins, and where the start has failed before nobody knows whether they are what it asks for.
  const bool start_failed = past.start.exit_code && *past.start.exit_code != 0 && *past.start.exit_code != kStopped;
  return start_failed || (at_work && past.start.fresh) ? "waiting" : "";
}

// From the file where there is one: what was committed counts, not what was told.
TaskState state_of(const Past& past, const TaskRecord& task) {
  const bool at_work = past.state == "running" || past.state == "no end";
  const std::string told = told_of(past, task, at_work);
  TaskState out{told.empty() ? "waiting" : told, task.units, task.done};
  if (task.results.empty() || told == "waiting") return out;
  const std::string path = results_in(past.folder, task);
  const ResultsFile::State on_disk = ResultsFile::state_on_disk(path);
  if (on_disk == ResultsFile::State::kComplete && told.empty()) {
    if (out.units == 0)
      out.units = ResultsFile::unit_counts(path).units;  // the log's, for packed files have units of their own
    return {"done", out.units, out.units};
  }
  const bool packs_later = ResultsFile::state_on_disk(packed_later_path(path)) == ResultsFile::State::kPartial;
  const bool begun = packs_later || on_disk == ResultsFile::State::kPartial;
  if (begun && task.kind != "train") {  // training commits its steps as states, not as units
    const UnitCounts counts = ResultsFile::unit_counts((packs_later ? packed_later_path(path) : path) + ".partial");
    out.units = counts.units;
    out.done = counts.done;
  }
  if (!told.empty()) return out;
  if (at_work && !task.begin.empty() && !task.exit_code) {
    out.state = "running";
  } else if (begun) {
    out.state = "to go on";
  }
  return out;
}

// What is left at the rate of this start; "-" before its first unit.
std::string time_left(const TaskRecord& task, const TaskState& state) {
  if (state.state != "running" || state.done <= task.done_before) return "-";
  const double a_unit = seconds_since_time(task.begin) / static_cast<double>(state.done - task.done_before);
  return format_duration(a_unit * static_cast<double>(state.units - std::min(state.units, state.done)));
}

std::string rate_of(const TaskRecord& task) {
  const std::string read = task.tokens_per_second > 0 ? fmt::format("{:.0f}", task.tokens_per_second) : "";
  if (task.written_tokens_per_second <= 0) return read.empty() ? "-" : read;
  return fmt::format("{:.0f} written{}", task.written_tokens_per_second, read.empty() ? "" : ", prompts " + read);
}

std::string status_text(const Past& past, std::size_t number, std::size_t of) {
  const StartRecord& start = past.start;
  std::string text = fmt::format(
      "{}: {}, start {} of {}, {} since {} UTC{}; last sign {} ago\n", printable(start.name, 60), past.state, number,
      of, format_count(static_cast<std::uint64_t>(start.ranks), "rank"), shown_time(printable(start.begin, 30)),
      past.holder ? " (" + past.holder->text + ")" : "", format_duration(seconds_since_time(start.last_sign)));
  if (!start.error.empty()) text += terminal_safe(start.error) + '\n';
  std::vector<std::vector<std::string>> rows = {
      {"TASK", "KIND", "STATE", "UNITS", "TOKENS/S", "LEFT", "LOSS", "RESULTS"}};
  for (const TaskRecord& task : start.tasks) {
    const TaskState now = state_of(past, task);
    const std::string units = now.units == 0
                                  ? "-"
                                  : fmt::format("{}/{} ({:.1f} %)", now.done, now.units,
                                                100.0 * static_cast<double>(now.done) / static_cast<double>(now.units));
    rows.push_back({printable(task.name, 60), printable(task.kind, 30), now.state, units, rate_of(task),
                    time_left(task, now), shown(task.loss), printable(results_in(past.folder, task), 200)});
  }
  return text + aligned(rows);
}

}  // namespace

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
        {"STARTED (UTC)", "RUN", "RANKS", "STATE", "TASKS", "TOKENS", "WRITTEN", "LOSS", "TIME"}};
    for (const Past& past : all.starts) {
      const StartRecord& start = past.start;
      rows.push_back({shown_time(printable(start.begin, 30)), printable(start.name, 60), std::to_string(start.ranks),
                      past.state, fmt::format("{}/{}", tasks_done(start), start.tasks.size()),
                      std::to_string(start.tokens()), std::to_string(start.written_tokens()), shown(last_loss(start)),
                      format_duration(seconds_of(start, past.state))});
    }
    for (const auto& [folder, fault] : all.unreadable)
      rows.push_back(
          {"-", printable(fs::path(folder).filename().string(), 60), "-", "unreadable", "-", "-", "-", "-", "-"});
    say(aligned(rows));
    for (const auto& [folder, fault] : all.unreadable) log_warning("{}", fault);
    return ExitCode::kDone;
  });
}

// The last start, after those before it that are still at work: starts of other tasks may be.
ExitCode status_command(Invocation& call) {
  return on_rank_zero(call.world, [&] {
    const std::string& folder = call.line.positional("RUN");
    const std::vector<Past> starts = starts_of(folder);
    MAGISTER_CHECK(!starts.empty(), ExitCode::kData,
                   "{}/run.jsonl: no start of a run in it (it was cut off); look at the results with info",
                   printable(folder));
    std::string text;
    for (std::size_t i = 0; i < starts.size(); ++i) {
      if (i + 1 < starts.size() && starts[i].state != "running") continue;
      text += (text.empty() ? "" : "\n") + status_text(starts[i], i + 1, starts.size());
    }
    say(text);
    return ExitCode::kDone;
  });
}

}  // namespace magister
