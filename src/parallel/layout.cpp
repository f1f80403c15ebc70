// Collects the probes of all ranks, solves the layout, and creates the group's communicator.
#include "magister/parallel/layout.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "magister/core/error.h"
#include "magister/core/log.h"
#include "magister/parallel/gpu_cards.h"
#include "magister/parallel/probes.h"
#include "parallel/check.h"
#include "parallel/layout_solver.h"
#include "parallel/planned_ranks.h"

namespace magister {

HostPlace host_place(const Communicator& world) {
  const RankProbe self = probe_ranks(world)[static_cast<std::size_t>(world.rank())];
  return {self.local_rank, self.local_size, self.gpu_rank, self.gpu_size};
}

namespace {

void use_places(std::vector<RankProbe>& ranks, const Communicator& world, const HostPlace& mine) {
  const auto from_all = [&](int number, int RankProbe::* field) {
    const std::vector<std::uint64_t> numbers = world.all_gather(static_cast<std::uint64_t>(number));
    for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i].*field = static_cast<int>(numbers[i]);
  };
  from_all(mine.rank, &RankProbe::local_rank);
  from_all(mine.size, &RankProbe::local_size);
  from_all(mine.gpu_rank, &RankProbe::gpu_rank);
  from_all(mine.gpu_size, &RankProbe::gpu_size);
}

// Every rank solves the same problem and throws the same error.
LayoutSolution solve(const Communicator& world, LayoutConfig config, int num_ranks) {
  std::vector<RankProbe> ranks = !planned_hosts().empty()    ? planned_ranks(probe_self(), num_ranks)
                                 : num_ranks == world.size() ? probe_ranks(world)
                                                             : invented_ranks(probe_self(), num_ranks, config);
  if (config.place_in_job) use_places(ranks, world, *config.place_in_job);
  config.share_gpus = shares_gpus();
  LayoutSolution solution = solve_layout(ranks, config);
  if (!solution.on_gpu && !config.cpu_only && !ranks[0].gpus.empty())
    log_info("{} GPU(s) found on {}, but this task computes on CPUs", ranks[0].gpus.size(), ranks[0].host);
  if (const std::string unlike = unlike_cards(solution.table); !unlike.empty()) log_warning("{}", unlike);
  return solution;
}

}  // namespace

GpuGroup GpuGroup::resolve(const Communicator& world, const LayoutConfig& config) {
  if (!config.place_in_job) refuse_singleton_launch(world.size());
  LayoutSolution solution = solve(world, config, world.size());
  const RankPlace& place = solution.places[static_cast<std::size_t>(world.rank())];
  const bool several = std::any_of(solution.places.begin(), solution.places.end(),
                                   [](const RankPlace& rank) { return rank.groups > 1; });
  if (several && world.size() > 1) require_threads("each of several groups of a rank claims units by itself");
  GpuGroup group;
  group.group_index_ = place.group_index;
  group.groups_here_ = place.groups;
  group.num_groups_ = solution.num_groups;
  group.tp_size_ = place.group_size;
  group.shares_ = config.shares.mixed() ? config.shares : GroupShares(place.group_size);
  group.first_of_size_ = place.first_of_size;
  group.groups_of_size_ = solution.groups_of_size.at(group.shares_.part_of(place.group_size));
  group.shards_here_ = place.shards;
  group.first_tp_rank_ = place.first_tp_rank;
  group.threads_per_shard_ =
      config.place_in_job ? std::min(place.threads_per_shard, config.most_threads) : place.threads_per_shard;
  group.devices_ = place.devices;
  group.on_gpu_ = solution.on_gpu;
  group.fast_collectives_ = config.fast_collectives;
  group.table_ = std::move(solution.table);
  group.members_ = world.split(group.group_index_, world.rank());
  group.leaders_ = world.split(group.is_leader() ? 0 : -1, world.rank());
  return group;
}

std::vector<DeviceRow> plan_layout(const Communicator& world, int num_ranks, const LayoutConfig& config) {
  MAGISTER_CHECK(num_ranks >= 1 && num_ranks <= 1'000'000, ExitCode::kConfig,
                 "a layout of {} ranks (there is work for 1 to 1000000); change --ranks", num_ranks);
  return solve(world, config, num_ranks).table;
}

bool group_size_divides(const std::vector<DeviceRow>& table, int group_size) {
  std::vector<int> devices;
  for (const DeviceRow& row : table) {
    if (static_cast<std::size_t>(row.world_rank) == devices.size()) devices.push_back(0);
    ++devices.back();
  }
  return group_size_divides(devices, group_size);
}

bool shares_gpus() {
  const char* wanted = std::getenv("MAGISTER_SHARE_GPUS");
  return wanted != nullptr && std::string_view(wanted) == "1";
}

void refuse_singleton_launch(int world_size) {
  const char* allowed = std::getenv("MAGISTER_ALLOW_SINGLETON");
  if (world_size != 1 || (allowed != nullptr && std::string_view(allowed) != "0" && *allowed != '\0')) return;
  // The innermost launcher is checked first, and the first variable that is set decides: `mpirun -np 1` or `srun -n 1`
  // inside a larger allocation is accepted, and an allocation alone (SLURM_NTASKS in the shell of a batch script) has
  // started no ranks.
  for (const char* name :
       {"OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}) {
    const char* value = std::getenv(name);
    if (value == nullptr) continue;
    const long launched = std::strtol(value, nullptr, 10);
    if (launched <= 1) return;
    fail(ExitCode::kUsage,
         "MPI sees one rank, but {} is {} (started without a launcher, or by one that this MPI does not know: each "
         "process would run the whole experiment alone); start with mpirun or srun --mpi=pmix, or set "
         "MAGISTER_ALLOW_SINGLETON=1 if one rank is meant",
         name, launched);
  }
}

}  // namespace magister
