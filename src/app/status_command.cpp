// status: the state of a run's tasks from the log, the locks and the results files, for this start and those before. It
// only reads and never locks.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>

#include "app/commands.h"
#include "app/on_rank_zero.h"
#include "app/past_runs.h"
#include "magister/core/log.h"
#include "magister/core/units_of_measure.h"
#include "magister/io/results/reader.h"
#include "magister/io/results/results_file.h"
#include "magister/run/results_on_disk.h"
#include "magister/train/checkpoint.h"

namespace magister {
namespace {

namespace fs = std::filesystem;

struct TaskState {
  // "done", "running", "resumable", "waiting", "failed (65)", "left out", "missing", "damaged"
  std::string state;
  std::uint64_t units = 0, done = 0;  // steps of a training; 0 units: their number is unknown
  std::optional<double> loss;
  // The start ended before it began the task, so results there are from an earlier start.
  bool of_the_start = false;
  std::string fault = {};  // set if the results are missing or damaged
};

// The state of a task by this start's events, if its results do not show it; "" if the events do not tell.
std::string state_from_events(const Past& past, const TaskRecord& task, bool at_work) {
  constexpr int kStopped = static_cast<int>(ExitCode::kStopped);
  if (task.exit_code && *task.exit_code != 0 && *task.exit_code != kStopped)
    return fmt::format("failed ({})", *task.exit_code);
  if (task.left_out) return "left out";
  if (task.exit_code || !task.begin.empty()) return "";
  // Earlier results stay there until the task begins; if the start failed before, it is unknown whether they fit this
  // experiment.
  const bool start_failed = past.start.exit_code && *past.start.exit_code != 0 && *past.start.exit_code != kStopped;
  return start_failed || (at_work && past.start.fresh) ? "waiting" : "";
}

// Why the file at `path` is not the complete results that its name says; empty: it may be. Only `check` reads it all.
std::string fault_of_complete(const std::string& path) {
  try {
    if (ResultsReader(path).complete()) return "";
  } catch (const Error& error) {
    return error.what();
  }
  return fmt::format(
      "{}: is not marked as complete (its name says that it is, so it was renamed or changed by hand); put it aside, "
      "and run the experiment again",
      printable(path, 4096));
}

// Units of complete results without a log: steps of a training, else units.
std::uint64_t units_in(const std::string& path, TaskKinds kinds) {
  const ResultsReader file(path);
  const TaskKind* const kind = kind_of(kinds, file);
  const bool counts_steps = kind != nullptr && kind->steps_column != nullptr;
  const ColumnSpec* const steps = counts_steps ? file.find(kind->steps_column) : nullptr;
  return steps != nullptr ? steps->num_rows : ResultsFile::unit_counts(path).units;
}

// A training commits its steps as saved states.
void add_saved_steps(const std::string& path, const TaskRecord& task, TaskState& out) {
  const std::optional<SavedStep> saved = newest_saved_step(fs::path(path).replace_extension(".checkpoints").string());
  if (!task.counts_steps) out.units = out.done = 0;  // a log of an earlier version
  if (!saved || saved->step < out.done) return;
  out.done = saved->step;
  out.loss = saved->loss;
}

// A file that cannot be read now is damaged only if nobody writes it, and if the log does not say more of the task.
void add_committed_units(const std::string& partial, bool may_be_damaged, TaskState& out) {
  try {
    const UnitCounts counts = ResultsFile::unit_counts(partial);
    out.units = counts.units;
    out.done = counts.done;
  } catch (const Error& error) {
    if (!may_be_damaged) return;
    out.state = "damaged";
    out.fault = error.what();
  }
}

// Uses the files if there are any: prefer committed units over the log's numbers.
TaskState state_of(const Past& past, const TaskRecord& task, TaskKinds kinds) {
  const TaskKind* const kind = find_kind(kinds, task.kind);
  const bool counts_steps = kind != nullptr && kind->steps_column != nullptr;
  const bool at_work = past.state == "running" || past.state == "no end";
  const std::string reported = state_from_events(past, task, at_work);
  TaskState out{reported.empty() ? "waiting" : reported, task.units, task.done, task.loss};
  if (!reported.empty() && !at_work && task.begin.empty()) return {reported, 0, 0, std::nullopt, true};
  if (task.results.empty() || reported == "waiting") return out;
  const std::string path = results_in(past.folder, task);
  const ResultsFile::State on_disk = ResultsFile::state_on_disk(path);
  if (on_disk == ResultsFile::State::kComplete && reported.empty()) {
    if (std::string fault = fault_of_complete(path); !fault.empty())
      return {"damaged", out.units, 0, out.loss, false, std::move(fault)};
    // Prefer the log's number, since packed files have units of their own, and the units of a training are not steps.
    if (out.units == 0 || (counts_steps && !task.counts_steps)) out.units = units_in(path, kinds);
    return {"done", out.units, out.units, out.loss, false};
  }
  const bool packs_later = ResultsFile::state_on_disk(packed_later_path(path)) == ResultsFile::State::kPartial;
  const bool begun = packs_later || on_disk == ResultsFile::State::kPartial;
  if (begun && counts_steps) {
    add_saved_steps(path, task, out);
  } else if (begun) {
    add_committed_units((packs_later ? packed_later_path(path) : path) + ".partial", reported.empty() && !at_work, out);
  }
  if (!reported.empty() || !out.fault.empty()) return out;
  if (task.exit_code == 0 && !begun && kind != nullptr && kind->schema != nullptr) {  // a service has no results
    return {"missing",
            out.units,
            0,
            out.loss,
            false,
            fmt::format("{}: is not there (this task completed it, so it was moved or removed); put it back, or run "
                        "the experiment again",
                        printable(path, 4096))};
  }
  if (at_work && !task.begin.empty() && !task.exit_code) {
    out.state = "running";
  } else if (begun) {
    out.state = "resumable";
  }
  return out;
}

// A task and its state, from the latest start that logged it.
struct Row {
  TaskRecord task;
  TaskState now;
  std::string path;
  std::size_t start = 0;  // number of the start; 0: no log has these results
};

// Time left at the rate of this start; no value before its first unit.
std::optional<double> seconds_left(const Row& row) {
  const TaskState& now = row.now;
  if (now.state != "running" || now.done <= row.task.done_before || now.units == 0) return std::nullopt;
  const double a_unit = seconds_since_time(row.task.begin) / static_cast<double>(now.done - row.task.done_before);
  return a_unit * static_cast<double>(now.units - std::min(now.units, now.done));
}

std::string rate_of(const TaskRecord& task) {
  const std::string read = task.tokens_per_second > 0 ? fmt::format("{:.0f}", task.tokens_per_second) : "";
  if (task.written_tokens_per_second <= 0) return read.empty() ? "-" : read;
  return fmt::format("{:.0f} written{}", task.written_tokens_per_second, read.empty() ? "" : ", prompts " + read);
}

std::string units_of(const TaskState& now) {
  if (now.state == "waiting") return "-";  // the number of an earlier start's units says nothing about this one
  if (now.units == 0) return now.done == 0 ? "-" : std::to_string(now.done);
  return fmt::format("{}/{} ({:.1f} %)", now.done, now.units,
                     100.0 * static_cast<double>(now.done) / static_cast<double>(now.units));
}

std::string table_of(const std::vector<Row>& rows) {
  std::vector<std::vector<std::string>> lines = {
      {"TASK", "KIND", "STATE", "UNITS", "TOKENS/S", "LEFT", "LOSS", "RESULTS"}};
  for (const Row& row : rows) {
    if (!row.now.fault.empty()) log_warning("{}", row.now.fault);
    const std::optional<double> left = seconds_left(row);
    lines.push_back({printable(row.task.name, 60), printable(row.task.kind, 30), row.now.state, units_of(row.now),
                     rate_of(row.task), left ? format_duration(*left) : "-", shown_loss(row.now.loss),
                     printable(row.path, 200)});
  }
  return aligned(lines);
}

nlohmann::ordered_json row_json(const Row& row) {
  nlohmann::ordered_json out = {{"task", row.task.name},  {"kind", row.task.kind},      {"state", row.now.state},
                                {"units", row.now.units}, {"units_done", row.now.done}, {"results", row.path}};
  if (row.task.tokens_per_second > 0) out["tokens_per_second"] = row.task.tokens_per_second;
  if (row.task.written_tokens_per_second > 0) out["written_tokens_per_second"] = row.task.written_tokens_per_second;
  if (const auto left = seconds_left(row)) out["seconds_left"] = *left;
  if (row.now.loss && std::isfinite(*row.now.loss)) out["loss"] = *row.now.loss;
  if (!row.task.error.empty()) out["error"] = row.task.error;
  if (!row.now.fault.empty()) out["fault"] = row.now.fault;
  if (row.start > 0) out["start"] = row.start;
  return out;
}

// The last record with units of each task, since a start that found complete results does not know their units.
using Computed = std::unordered_map<std::string, TaskRecord>;

Computed computed_in(const std::vector<Past>& starts) {
  Computed all;
  for (const Past& past : starts) {
    for (const TaskRecord& task : past.start.tasks) {
      if (task.units > 0) all[task.name] = task;
    }
  }
  return all;
}

// Tasks that later starts have shown, and tasks of which later starts showed only their own end.
struct Reported {
  std::set<std::string> tasks, ends;
};

// The rows of start i without tasks that other starts have shown; the new rows count as shown from then on.
std::vector<Row> rows_of(const std::vector<Past>& starts, std::size_t i, const Computed& computed, TaskKinds kinds,
                         Reported& reported) {
  std::vector<Row> rows;
  for (TaskRecord task : starts[i].start.tasks) {
    if (reported.tasks.contains(task.name)) continue;
    const auto other = computed.find(task.name);
    if (task.units == 0 && task.begin.empty() && other != computed.end()) {
      task.units = other->second.units;
      task.counts_steps = other->second.counts_steps;
      task.loss = other->second.loss;
    }
    Row row{task, state_of(starts[i], task, kinds), results_in(starts[i].folder, task), i + 1};
    const bool ended_before = reported.ends.contains(task.name);
    if (row.now.of_the_start) {
      reported.ends.insert(task.name);
    } else if (row.now.state != "waiting" || !ended_before) {
      reported.tasks.insert(task.name);
    }
    if (!ended_before || reported.tasks.contains(task.name)) rows.push_back(std::move(row));
  }
  return rows;
}

// Complete results in the folder that no start has logged: from a log that was removed, or from merge.
std::vector<Row> rows_without_a_log(const std::string& folder, TaskKinds kinds, const Reported& reported) {
  std::vector<Row> rows;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string path = entry.path().string();
    if (entry.path().extension() != ".h5" || !fs::is_regular_file(entry.symlink_status(error))) continue;
    Row row;
    row.task.name = entry.path().stem().string();
    row.path = path;
    if (reported.tasks.contains(row.task.name)) continue;
    try {
      const ResultsReader file(path);
      const std::string format = file.text("format");
      if (!file.complete() || !format.starts_with("magister.")) continue;
      row.task.kind = format.substr(std::string("magister.").size());
      const std::uint64_t units = units_in(path, kinds);
      row.now = {"done", units, units, std::nullopt, false};
    } catch (const Error&) {  // a file of another program
      continue;
    }
    rows.push_back(std::move(row));
  }
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.task.name < b.task.name; });
  return rows;
}

std::string head_of(const Past& past, std::size_t number, std::size_t of) {
  const StartRecord& start = past.start;
  std::string text = fmt::format(
      "{}: {}, start {} of {}, {} since {} UTC{}; last sign {} ago\n", printable(start.name, 60), past.state, number,
      of, format_count(static_cast<std::uint64_t>(start.ranks), "rank"), shown_time(printable(start.begin, 30)),
      past.holder ? " (" + past.holder->text + ")" : "", format_duration(seconds_since_time(start.last_sign)));
  if (!start.error.empty()) text += terminal_safe(start.error) + '\n';
  return text;
}

// The last start, preceded by earlier starts that are still running (they may compute other tasks), and all other
// results in the folder.
struct RunStatus {
  struct Shown {
    std::size_t index = 0;
    std::vector<Row> rows;
  };
  std::vector<Past> starts;
  std::vector<Shown> shown;
  std::vector<Row> earlier;
};

// A run is given by its folder or by a file in it.
std::string run_folder(const std::string& path) {
  std::error_code error;
  const std::string around = fs::path(path).parent_path().string();
  return fs::is_regular_file(path, error) && fs::exists(fs::path(around) / "run.jsonl", error)
             ? (around.empty() ? "." : around)
             : path;
}

RunStatus status_of(const std::string& folder, TaskKinds kinds) {
  RunStatus status{starts_of(folder), {}, {}};
  const std::vector<Past>& starts = status.starts;
  MAGISTER_CHECK(!starts.empty(), ExitCode::kData,
                 "{}/run.jsonl: no start of a run in it (it was cut off); look at the results with info",
                 printable(folder));
  const Computed computed = computed_in(starts);
  Reported reported;
  for (std::size_t i = starts.size(); i-- > 0;) {
    if (i + 1 == starts.size() || starts[i].state == "running")
      status.shown.insert(status.shown.begin(), {i, rows_of(starts, i, computed, kinds, reported)});
  }
  for (std::size_t i = starts.size(); i-- > 0;) {
    std::vector<Row> rows = rows_of(starts, i, computed, kinds, reported);
    status.earlier.insert(status.earlier.begin(), rows.begin(), rows.end());
  }
  for (Row& row : rows_without_a_log(folder, kinds, reported)) status.earlier.push_back(std::move(row));
  return status;
}

std::string status_text(const RunStatus& status) {
  std::string text;
  for (const auto& [index, rows] : status.shown) {
    text += (text.empty() ? "" : "\n") + head_of(status.starts[index], index + 1, status.starts.size());
    text += table_of(rows);
  }
  if (!status.earlier.empty()) text += "\nof other starts\n" + table_of(status.earlier);
  return text;
}

nlohmann::ordered_json status_json(const RunStatus& status) {
  const Past& last = status.starts.back();
  nlohmann::ordered_json out = json_of(last), tasks = nlohmann::ordered_json::array(),
                         at_work = nlohmann::ordered_json::array();
  out.erase("tasks");
  out.erase("tasks_done");
  out["start"] = status.starts.size();
  out["seconds_since_last_sign"] = seconds_since_time(last.start.last_sign);
  if (last.holder) out["holder"] = last.holder->text;
  for (const auto& [index, rows] : status.shown) {
    if (status.starts[index].state == "running") at_work.push_back(index + 1);
    for (const Row& row : rows) tasks.push_back(row_json(row));
  }
  for (const Row& row : status.earlier) tasks.push_back(row_json(row));
  out["starts_at_work"] = at_work;
  out["tasks"] = tasks;
  return out;
}

}  // namespace

ExitCode status_command(Invocation& call) {
  return on_rank_zero(call.world, [&] {
    const RunStatus status = status_of(run_folder(call.line.positional("RUN")), call.kinds);
    say(call.line.has("--json")
            ? status_json(status).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n"
            : status_text(status));
    return ExitCode::kDone;
  });
}

}  // namespace magister
