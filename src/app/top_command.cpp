// top: the ranks and GPUs of a run, from the states that they write into its folder (magister/monitor/rank_states.h),
// and its tasks from run.jsonl. It only reads, on any host that sees the folder.
#include <chrono>
#include <thread>

#include "app/commands.h"
#include "app/on_rank_zero.h"
#include "app/past_runs.h"
#include "magister/core/log.h"
#include "magister/core/units_of_measure.h"
#include "magister/monitor/rank_states.h"

namespace magister {
namespace {

using nlohmann::json;
constexpr std::chrono::seconds kBetweenTables{2};

// A value with its format, or "-" if it was not measured.
std::string cell(const json& values, const char* name, const char* format, double unit = 1) {
  const json value = state_member(values, name);
  return value.is_number() ? fmt::format(fmt::runtime(format), unit * value.get<double>()) : std::string("-");
}

std::string bytes_cell(const json& values, const char* name) {
  const json value = state_member(values, name);
  return value.is_number() ? format_bytes(static_cast<std::uint64_t>(value.get<double>())) : std::string("-");
}

std::string tasks_text(const Past& past) {
  std::vector<std::vector<std::string>> rows = {{"TASK", "KIND", "UNITS", "TOKENS/S", "LOSS"}};
  for (const TaskRecord& task : past.start.tasks) {
    const double rate = task.written_tokens_per_second > 0 ? task.written_tokens_per_second : task.tokens_per_second;
    rows.push_back({printable(task.name, 40), printable(task.kind, 20), fmt::format("{}/{}", task.done, task.units),
                    rate > 0 ? fmt::format("{:.0f}", rate) : "-", shown_loss(task.loss)});
  }
  return aligned(rows);
}

std::string ranks_text(const std::vector<json>& states) {
  std::vector<std::vector<std::string>> rows = {
      {"RANK", "HOST", "AGE", "CORES", "MEMORY", "GPU", "USE", "GPU-MEMORY", "TEMP", "POWER"}};
  const double now = 1e-3 * static_cast<double>(std::chrono::duration_cast<std::chrono::milliseconds>(
                                                    std::chrono::system_clock::now().time_since_epoch())
                                                    .count());
  for (const json& state : states) {
    std::vector<std::string> row = {fmt::format("{:.0f}", state_number(state, "rank")),
                                    printable(state_text(state, "host"), 30),
                                    fmt::format("{:.0f} s", now - state_number(state, "time")),
                                    cell(state_member(state, "minute"), "cpu_cores", "{:.2f}"),
                                    bytes_cell(state_member(state, "values"), "resident_memory_bytes")};
    const json gpus = state_member(state, "gpus");
    if (!gpus.is_array() || gpus.empty()) rows.push_back(row);
    for (const json& gpu : gpus.is_array() ? gpus : json::array()) {
      const json values = state_member(gpu, "values");
      std::vector<std::string> all = row;
      for (std::string text :
           {fmt::format("{:.0f}", state_number(gpu, "index")), cell(values, "utilization_ratio", "{:.0f} %", 100),
            bytes_cell(values, "memory_used_bytes"), cell(values, "temperature_celsius", "{:.0f} C"),
            cell(values, "power_watts", "{:.0f} W")})
        all.push_back(std::move(text));
      rows.push_back(std::move(all));
    }
  }
  return aligned(rows);
}

std::string table_now(const std::string& folder, bool& at_work) {
  const std::vector<Past> starts = starts_of(folder);
  MAGISTER_CHECK(!starts.empty(), ExitCode::kData, "{}/run.jsonl: no start of a run in it (it was cut off); see status",
                 printable(folder));
  const Past& last = starts.back();
  at_work = last.state == "running" || last.state == "no end";
  return fmt::format("{}: {}, {}\n", printable(last.start.name, 60), last.state,
                     format_count(static_cast<std::uint64_t>(last.start.ranks), "rank")) +
         tasks_text(last) + "\n" + ranks_text(read_rank_states(folder + "/monitor", last.start.id));
}

}  // namespace

ExitCode top_command(Invocation& call) {
  return on_rank_zero(call.world, [&] {
    const std::string folder = call.line.positional("RUN");
    const bool once = call.line.has("--once");
    for (bool at_work = true; at_work && !call.stop.raised();) {
      const std::string table = table_now(folder, at_work);
      say((once ? "" : "\x1b[H\x1b[2J") + table);
      flush_standard_output();
      if (once) break;
      if (at_work) std::this_thread::sleep_for(kBetweenTables);
    }
    return ExitCode::kDone;
  });
}

}  // namespace magister
