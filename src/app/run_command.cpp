// run: computes the tasks of an experiment in their order, each into its results file, and logs the run in run.jsonl.
// plan: does the same up to the first computation and prints it. Both give the same exit codes for the same faults.
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "app/commands.h"
#include "app/on_rank_zero.h"
#include "app/open_tasks.h"
#include "app/planned_devices.h"
#include "app/run_monitor.h"
#include "app/run_tasks.h"
#include "app/task_graph.h"
#include "magister/app/experiment.h"
#include "magister/core/host_name.h"
#include "magister/core/log.h"
#include "magister/core/units_of_measure.h"
#include "magister/io/whole_file.h"
#include "magister/parallel/gpu_cards.h"
#include "magister/parallel/layout.h"
#include "magister/parallel/task_dispatcher.h"
#include "magister/run/config_plan.h"
#include "magister/run/device_lines.h"
#include "magister/run/peak_memory.h"
#include "magister/run/results_on_disk.h"
#include "magister/run/run_log.h"
#include "magister/run/task_runner.h"

namespace magister {

namespace {

using Clock = std::chrono::steady_clock;

Experiment load(const Invocation& call) {
  return Experiment::load(call.world, call.line.positional("FILE.yaml"), call.line.rest("key.path=value"), call.kinds);
}

void set_deadline(const Invocation& call, const ExperimentConfig& config, Clock::time_point begin) {
  std::optional<double> seconds = config.run.max_wall_seconds;
  if (const std::string text = call.line.option("--max-wall"); !text.empty()) {
    seconds = parse_wall_time(text);
    if (!seconds) {
      fail(ExitCode::kUsage,
           "--max-wall {} is not a time (hours, minutes and seconds are expected); write it as HH:MM:SS, "
           "for example 11:45:00",
           printable(text, 40));
    }
  }
  if (!seconds) return;
  const auto deadline = begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(*seconds));
  call.stop.deadline_nanoseconds =
      std::chrono::duration_cast<std::chrono::nanoseconds>(deadline.time_since_epoch()).count();
}

nlohmann::ordered_json hosts_of(const Communicator& world) {
  nlohmann::ordered_json hosts = nlohmann::ordered_json::array();
  for (const std::string& host : world.all_gather(host_name())) hosts.push_back(host);
  return hosts;
}

// A job that the scheduler has requeued runs the same command line again; it must resume, or --fresh would start over
// each time.
bool starts_fresh(const Invocation& call) {
  if (!call.line.has("--fresh")) return false;
  const char* restarts = std::getenv("SLURM_RESTART_COUNT");
  if (restarts == nullptr || std::string_view(restarts) == "0" || *restarts == '\0') return true;
  log_info(
      "--fresh is ignored: the scheduler has restarted this job (SLURM_RESTART_COUNT is {}), so its own results are "
      "resumed",
      printable(restarts, 20));
  return false;
}

void make_output_folder(const Communicator& world, const std::string& folder) {
  on_rank_zero(world, [&] {
    make_folders(folder);
    return ExitCode::kDone;
  });
}

// All ranks agree on the reason of a stop. If any rank has got TERM, the largest of the handled signals, it wins, since
// a job that was terminated must not requeue itself.
void agree_on_signal(const Communicator& world, StopSign& stop) {
  const std::uint64_t signal = world.max(static_cast<std::uint64_t>(stop.signal.load()));
  if (signal != 0) stop.signal = static_cast<int>(signal);
}

// Writes the reason of the stop for jobs/run-and-requeue.sh, which does not know the run's folder.
void write_stop_reason(const std::string& reason) {
  const char* const path = std::getenv("MAGISTER_STOP_FILE");
  if (path == nullptr || *path == '\0') return;
  if (std::ofstream file(path); !(file << reason << std::endl))
    log_warning("{}: cannot be written (MAGISTER_STOP_FILE; run.jsonl has the reason of the stop)", printable(path));
}

}  // namespace

ExitCode run_command(Invocation& call) {
  const auto begin = Clock::now();
  const Communicator& world = call.world;
  const Experiment experiment = load(call);
  const ExperimentConfig& config = experiment.config();
  set_deadline(call, config, begin);
  if (call.line.has("--print-config")) {
    if (world.rank() == 0) say(experiment.resolved_yaml());
    return ExitCode::kDone;
  }
  if (call.line.has("--quiet")) set_verbosity(Verbosity::kQuiet);
  if (call.line.has("--verbose")) set_verbosity(Verbosity::kVerbose);
  refuse_singleton_launch(world.size());
  make_output_folder(world, config.folder());
  const bool fresh = starts_fresh(call);
  // The locks are taken before anything is written, so a refused start leaves no line in the log of a running one.
  RunLocks locks(world, experiment, fresh);
  open_rank_log(config.folder() + "/logs");
  const auto log =
      world.rank() == 0 ? std::make_unique<RunLog>(config.folder() + "/run.jsonl") : std::make_unique<RunLog>();
  std::string start = log->start();
  world.broadcast(start, 0);
  const nlohmann::ordered_json hosts = hosts_of(world);
  nlohmann::ordered_json tasks = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < experiment.tasks().size(); ++i) {
    const Task& task = *experiment.tasks()[i];
    tasks.push_back({{"task", task.name()}, {"kind", task.kind()}, {"results", experiment.results_path(i)}});
  }
  log->event("run", {{"name", config.name},
                     {"version", MAGISTER_VERSION},
                     {"ranks", world.size()},
                     {"fresh", fresh},
                     {"hosts", hosts},
                     {"working_directory", std::filesystem::current_path().string()},
                     {"tasks", tasks},
                     {"experiment", experiment.resolved_yaml()}});
  RunMonitor monitor(world, config.name, config.folder(), start, call.line.option("--metrics"), *log);
  ExitCode code = ExitCode::kDone;
  try {
    code = run_tasks(call, experiment, *log, monitor.monitor(), start, fresh, locks);
  } catch (const Error& error) {
    if (error.code() != ExitCode::kStopped) {
      log->event("error", {{"message", error.what()}, {"exit_code", static_cast<int>(error.code())}});
      throw;
    }
    code = ExitCode::kStopped;
    log_info("{}: stopped cleanly before the first unit; run the same command again", config.name);
  } catch (const std::exception& error) {
    log->event("error", {{"message", error.what()}, {"exit_code", static_cast<int>(ExitCode::kInternal)}});
    throw;
  }
  if (code == ExitCode::kStopped) agree_on_signal(world, call.stop);
  if (code == ExitCode::kStopped && call.stop.raised()) log_info("{}: stopped by {}", config.name, call.stop.reason());
  if (code == ExitCode::kStopped && world.rank() == 0) write_stop_reason(call.stop.reason());
  monitor.report();
  const nlohmann::ordered_json peaks =
      gathered_peaks(world, static_cast<std::uint64_t>(world.rank()), peak_memory_of_process());
  log->event("end", {{"exit_code", static_cast<int>(code)},
                     {"stopped_by", call.stop.reason()},
                     {"seconds", std::chrono::duration<double>(Clock::now() - begin).count()},
                     {"peak_memory", peaks}});
  const std::uint64_t lost = world.max(log->num_lost());
  MAGISTER_CHECK(
      lost == 0 || code != ExitCode::kDone, ExitCode::kInputOutput,
      "{}/run.jsonl: {} events could not be written (the results are complete, the run's log is not); free space",
      printable(config.folder()), lost);
  return code;
}

namespace {

std::string describe_memory(std::uint64_t all, const MemoryParts& parts) {
  return format_bytes(all) + (parts.empty() ? "" : " (" + describe(parts) + ")");
}

std::string plan_text(const Task& task, const std::string& results_path, const PlanReport& report) {
  std::string out = fmt::format("task {} ({}) -> {}\n", task.name(), task.kind(), results_path);
  const auto line = [&](std::string_view name, const std::string& value) {
    out += fmt::format("  {:<18} {}\n", name, value);
  };
  if (const std::vector<std::string> needs = task.needs(); !needs.empty())
    line("needs", fmt::format("{}", fmt::join(needs, ", ")));
  if (report.devices.empty()) {  // a step that computes no units
    for (const auto& [name, value] : report.notes) line(name, value);
    return out;
  }
  line("model", report.model);
  if (report.sizes.empty()) {
    line("groups", fmt::format("{}, each of {}", report.num_groups, format_count(report.tp_size, "device")));
    line("memory per device", describe_memory(report.device_bytes, report.device_parts));
  }
  for (const auto& one : report.sizes) {
    line("groups",
         fmt::format("{} of {}, for {} of the units", one.groups, format_count(one.size, "device"), one.units));
    line("memory per device", describe_memory(sum_of(one.device_parts), one.device_parts));
  }
  if (report.num_units == 0 && report.num_samples > 0) {  // depends on results of earlier tasks
    line("records", std::to_string(report.num_samples));
  } else {
    line("samples", std::to_string(report.num_samples));
    line("tokens", std::to_string(report.num_tokens));
    line("units", report.num_units_done == 0 ? std::to_string(report.num_units)
                                             : fmt::format("{}, {} done", report.num_units, report.num_units_done));
    line("results", format_bytes(report.results_bytes) + fmt::format(" ({} bytes)", report.results_bytes));
  }
  line("free space", format_bytes(report.free_bytes));
  for (const auto& [name, value] : report.notes) line(name, value);
  return out + report.first_prompt + group_lines(report.devices);
}

// Lists when each of several tasks begins.
std::string order_text(const Experiment& experiment, const OpenTasks& tasks, int num_ranks) {
  if (experiment.tasks().size() < 2) return "";
  const TaskNeeds needs = needs_of(experiment);
  const int groups = TaskDispatcher::num_groups(num_ranks, tasks.ranks_a_group()),
            at_once = experiment.config().run.at_once;
  if (!may_overlap(needs, groups, at_once)) return "order: one after the other, each over all ranks\n";
  std::string out =
      fmt::format("order over {} groups of {}, estimated from the tasks' records and tokens\n  {:<6} {:<8} task\n",
                  groups, format_count(static_cast<std::uint64_t>(tasks.ranks_a_group()), "rank"), "step", "groups");
  std::size_t step = 0;
  double last = -1;
  for (const PlannedStart& start : planned_order(needs, tasks.sizes(), groups, at_once)) {
    if (start.begin != last) ++step;
    last = start.begin;
    out += fmt::format("  {:<6} {:<8} {}\n", step, start.groups, experiment.tasks()[start.task]->name());
  }
  return out;
}

std::string note_line(const PlanSection& plan) { return plan.note.empty() ? "" : "plan: " + plan.note + "\n"; }

// Opens no weights, tokenizers or data sets; rank 0 does the work while the others wait.
ExitCode plan_from_configs(const Communicator& world, const Experiment& experiment, int num_ranks) {
  return on_rank_zero(world, [&] {
    const ExperimentConfig& config = experiment.config();
    const int planned_ranks = config.plan.hosts.empty() ? 0 : num_ranks;
    say(note_line(config.plan));
    std::map<std::string, std::string> planned;  // text -> the first task that printed it
    for (const auto& task : experiment.tasks()) {
      const ModelSection model = task->model_section().placeholder();
      if (model.none) {
        say(fmt::format("task {} ({})\n  model     none\n", task->name(), task->kind()));
        continue;
      }
      if (!task->traits().runs_model) {
        say(
            fmt::format("task {} ({}), {}\n  not planned from a config alone: its memory depends on the data. Run "
                        "`magister plan` where model and data are: it obeys plan.devices and plan.device_memory.\n",
                        task->name(), task->kind(), printable(model.path)));
        continue;
      }
      std::string text = plan_from_config(world, *task, config.layout, config.plan.device_memory, planned_ranks);
      const auto [first, is_new] = planned.emplace(printable(model.path) + "\n" + text, task->name());
      if (!is_new) text = fmt::format("  as task {}\n", first->second);
      say(fmt::format("task {} ({}), {}\n{}", task->name(), task->kind(), printable(model.path), text));
    }
    return ExitCode::kDone;
  });
}

}  // namespace

ExitCode plan_command(Invocation& call) {
  const Communicator& world = call.world;
  const Experiment experiment = load(call);
  if (call.line.has("--print-config")) {
    if (world.rank() == 0) say(experiment.resolved_yaml());
    return ExitCode::kDone;
  }
  // With the number of ranks given, one process may plan, for example in the shell of an allocation.
  const bool config_only = call.line.has("--config-only");
  const PlanSection& plan = experiment.config().plan;
  if (call.line.options.count("--ranks") == 0 && !config_only && plan.hosts.empty())
    refuse_singleton_launch(world.size());
  const int num_ranks = plan_with_devices(call, experiment.config(), config_only);
  if (config_only) return plan_from_configs(world, experiment, num_ranks);
  if (world.rank() == 0) say(note_line(plan));
  RunLog silent;
  OpenTasks tasks(call, experiment, silent, false, num_ranks);
  std::uint64_t needed_bytes = 0;
  for (std::size_t i = 0; i < experiment.tasks().size(); ++i) {
    const PlanReport report = tasks.take(i).step->plan();
    const std::string path = experiment.results_path(i);
    if (world.rank() == 0) say(plan_text(*experiment.tasks()[i], path, report));
    needed_bytes += report.needed_bytes;
    // The file system of a planned cluster is unknown.
    if (report.needed_bytes > 0 && planned_hosts().empty() && needed_bytes + kFreeSpaceMargin > report.free_bytes) {
      fail(ExitCode::kInputOutput,
           "{}: {} bytes are free, but the results up to this task need {} (the run would stop half-way); "
           "make room or choose another output.directory",
           printable(path), report.free_bytes, needed_bytes + kFreeSpaceMargin);
    }
  }
  if (world.rank() == 0) say(order_text(experiment, tasks, num_ranks));
  return ExitCode::kDone;
}

}  // namespace magister
