// See planned_devices.h.
#include "app/planned_devices.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "magister/parallel/gpu_cards.h"

namespace magister {
namespace {

// One rank for each GPU that the job may use, or for devices_per_rank of them if that divides the GPUs of every host
// equally.
int ranks_on(const std::vector<std::vector<GpuDevice>>& hosts, const LayoutConfig& layout) {
  const auto chosen = [&](const std::vector<GpuDevice>& host) {
    return layout.devices.empty() ? host.size() : layout.devices.size();
  };
  const auto driven = static_cast<std::size_t>(std::max(1, layout.devices_per_rank));
  const bool divides = std::all_of(hosts.begin(), hosts.end(), [&](const std::vector<GpuDevice>& host) {
    return chosen(host) == chosen(hosts.front()) && chosen(host) % driven == 0;
  });
  std::size_t count = 0;
  for (const std::vector<GpuDevice>& host : hosts) count += divides ? chosen(host) / driven : chosen(host);
  return static_cast<int>(count);
}

// The hosts for plan.device_memory: like this one if it has GPUs, else a single one with all GPUs that the ranks drive.
std::vector<std::vector<GpuDevice>> hosts_with(const GpuDevice& device, const LayoutConfig& layout, int num_ranks) {
  const int here = static_cast<int>(discover_gpus().size());
  const int named = layout.devices.empty() ? 0 : *std::max_element(layout.devices.begin(), layout.devices.end()) + 1;
  const int driven = num_ranks * std::max(1, layout.devices_per_rank);
  const int gpus = here > 0 ? here : std::max(driven, named);
  const int hosts = here > 0 ? num_ranks / ranks_on_a_host(num_ranks, here, layout) : 1;
  return std::vector(static_cast<std::size_t>(hosts), std::vector(static_cast<std::size_t>(gpus), device));
}

}  // namespace

int plan_with_devices(const Invocation& call, const ExperimentConfig& config, bool config_only) {
  const PlanSection& plan = config.plan;
  const bool of_size = plan.hosts.empty() && plan.device_memory > 0 && !config.layout.cpu_only && !config_only;
  int ranks = call.world.size();
  if (!plan.hosts.empty()) ranks = ranks_on(plan.hosts, config.layout);
  if (of_size && ranks == 1 && discover_gpus().empty()) ranks = std::max(1, config.layout.gpus_per_group);
  ranks = static_cast<int>(call.line.number("--ranks", ranks, 1, 1'000'000));
  if (!plan.hosts.empty()) {
    plan_with_hosts(plan.hosts);
  } else if (of_size) {
    plan_with_hosts(hosts_with(plan.device, config.layout, ranks));
  }
  return ranks;
}

}  // namespace magister
