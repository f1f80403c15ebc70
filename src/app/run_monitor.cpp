// See run_monitor.h. A fatal fault of a GPU ends the job as a stalled rank does (parallel/watchdog.cpp).
#include "app/run_monitor.h"

#include <algorithm>
#include <optional>

#include "magister/core/host_name.h"
#include "magister/core/log.h"
#include "magister/monitor/monitor.h"
#include "magister/monitor/prometheus.h"
#include "magister/monitor/rank_states.h"
#include "magister/parallel/layout.h"
#include "magister/run/run_log.h"
#include "magister/run/usage.h"

namespace magister {
namespace {

// The GPUs that this process sees; none if they cannot be asked, since a run on CPUs does not need them.
std::vector<WatchedGpu> visible_gpus() {
  std::vector<WatchedGpu> gpus;
  try {
    for (const GpuDevice& gpu : discover_gpus()) gpus.push_back({gpu.index, gpu.uuid, gpu.pci, gpu.name});
  } catch (const Error&) {
  }
  return gpus;
}

std::string what_is_seen(const std::vector<WatchedGpu>& gpus) {
  std::string text = host_name();
  for (const WatchedGpu& gpu : gpus) text += '\n' + gpu.uuid;
  return text;
}

// This rank's even part of the GPUs among the ranks that see the same. Collective over world.
std::vector<WatchedGpu> own_part(const Communicator& world, const std::vector<WatchedGpu>& visible) {
  const std::vector<std::string> seen = world.all_gather(what_is_seen(visible));
  const auto own = static_cast<std::size_t>(world.rank());
  const auto before =
      static_cast<std::size_t>(std::count(seen.begin(), seen.begin() + static_cast<std::ptrdiff_t>(own), seen[own]));
  const auto sharing = static_cast<std::size_t>(std::count(seen.begin(), seen.end(), seen[own]));
  const std::size_t first = before * visible.size() / sharing, last = (before + 1) * visible.size() / sharing;
  return {visible.begin() + static_cast<std::ptrdiff_t>(first), visible.begin() + static_cast<std::ptrdiff_t>(last)};
}

// True on the first rank of each host. Collective over world.
bool is_first_of_host(const Communicator& world) {
  const std::vector<std::string> hosts = world.all_gather(host_name());
  return std::find(hosts.begin(), hosts.end(), host_name()) - hosts.begin() == world.rank();
}

}  // namespace

struct RunMonitor::State {
  const Communicator& world;
  RunLog& log;
  std::optional<Monitor> monitor;
  std::optional<Monitor::Watch> watch;
  std::optional<MetricsEndpoint> endpoint;
};

RunMonitor::RunMonitor(const Communicator& world, const std::string& run, const std::string& folder,
                       const std::string& start, const std::string& metrics, RunLog& log)
    : state_(new State{world, log, {}, {}, {}}) {
  const bool is_root = world.rank() == 0, first_of_host = is_first_of_host(world);
  MonitorSettings settings;
  settings.folder = folder + "/monitor";
  settings.start = start;
  settings.rank = world.rank();
  settings.ranks = world.size();
  settings.run = run;
  settings.gpus = own_part(world, visible_gpus());
  const bool to_file = metrics.ends_with(".prom");
  if (to_file && first_of_host) {
    settings.textfile = metrics;
    settings.textfile_host = host_name();
  }
  settings.on_fault = [&log](const std::string& message) {
    constexpr int kCode = static_cast<int>(ExitCode::kInputOutput);
    log.event("error", {{"message", message}, {"exit_code", kCode}});
    log_local(LogLevel::kError, "{}", message);
    abort_job(kCode);
  };
  // A line of all ranks: with many ranks it is written less often.
  settings.series_seconds = 60.0 * ((world.size() + 63) / 64);
  if (is_root) settings.on_series = [&log](const nlohmann::ordered_json& series) { log.event("monitor", series); };
  state_->monitor.emplace(settings);
  state_->watch.emplace(&*state_->monitor, "", nullptr);
  if (metrics.empty() || to_file || !is_root) return;
  state_->endpoint.emplace(metrics, [run, start, states = settings.folder] {
    return prometheus_text(run, read_rank_states(states, start));
  });
  log_info("metrics are served at port {} of {}", state_->endpoint->port(), host_name());
}

RunMonitor::~RunMonitor() = default;

Monitor& RunMonitor::monitor() { return *state_->monitor; }

void RunMonitor::report() {
  const auto rank = static_cast<std::uint64_t>(state_->world.rank());
  state_->log.event("usage", gathered_usage(state_->world, rank, *state_->watch));
}

}  // namespace magister
