// Asks every rank what it is, solves, and makes the group's communicator.
#include "magister/parallel/layout.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "magister/core/error.h"
#include "magister/core/log.h"
#include "magister/parallel/probes.h"
#include "parallel/layout_solver.h"

namespace magister {

HostPlace host_place(const Communicator& world) {
  const Communicator host = world.split_by_host();
  return {host.rank(), host.size()};
}

namespace {

void use_places(std::vector<RankProbe>& ranks, const Communicator& world, HostPlace mine) {
  const std::vector<std::uint64_t> local_ranks = world.all_gather(static_cast<std::uint64_t>(mine.rank)),
                                   local_sizes = world.all_gather(static_cast<std::uint64_t>(mine.size));
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    ranks[i].local_rank = static_cast<int>(local_ranks[i]);
    ranks[i].local_size = static_cast<int>(local_sizes[i]);
  }
}

}  // namespace

GpuGroup GpuGroup::resolve(const Communicator& world, const LayoutConfig& config) {
  if (!config.place_in_job) refuse_singleton_launch(world.size());
  std::vector<RankProbe> ranks = probe_ranks(world);
  if (config.place_in_job) use_places(ranks, world, *config.place_in_job);
  // Every rank solves the same problem and throws the same error.
  LayoutConfig wishes = config;
  wishes.share_gpus = shares_gpus();
  LayoutSolution solution = solve_layout(ranks, wishes);
  const RankPlace& place = solution.places[static_cast<std::size_t>(world.rank())];
  if (!solution.on_gpu && !config.cpu_only && !ranks[0].gpus.empty()) {
    log_info("{} GPU(s) found on {}, but this task computes on CPUs", ranks[0].gpus.size(), ranks[0].host);
  }
  GpuGroup group;
  group.group_index_ = place.group_index;
  group.num_groups_ = solution.num_groups;
  group.tp_size_ = solution.tp_size;
  group.shards_per_rank_ = solution.shards_per_rank;
  group.first_tp_rank_ = place.first_tp_rank;
  group.threads_per_shard_ =
      config.place_in_job ? std::min(place.threads_per_shard, config.most_threads) : place.threads_per_shard;
  group.device_index_ = place.device_index;
  group.on_gpu_ = solution.on_gpu;
  group.fast_collectives_ = config.fast_collectives;
  group.table_ = std::move(solution.table);
  group.members_ = world.split(group.group_index_, world.rank());
  group.leaders_ = world.split(group.is_leader() ? 0 : -1, world.rank());
  return group;
}

std::vector<DeviceRow> plan_layout(int num_ranks, const LayoutConfig& config) {
  MAGISTER_CHECK(num_ranks >= 1 && num_ranks <= 1'000'000, ExitCode::kConfig,
                 "a layout of {} ranks (there is work for 1 to 1000000); change --ranks", num_ranks);
  std::vector<RankProbe> ranks(static_cast<std::size_t>(num_ranks), probe_self());
  for (int rank = 0; rank < num_ranks; ++rank) {
    RankProbe& probe = ranks[static_cast<std::size_t>(rank)];
    probe.world_rank = probe.local_rank = rank;
    probe.local_size = num_ranks;
  }
  return solve_layout(ranks, config).table;
}

bool shares_gpus() {
  const char* wanted = std::getenv("MAGISTER_SHARE_GPUS");
  return wanted != nullptr && std::string_view(wanted) == "1";
}

void refuse_singleton_launch(int world_size) {
  const char* allowed = std::getenv("MAGISTER_ALLOW_SINGLETON");
  if (world_size != 1 || (allowed != nullptr && std::string_view(allowed) != "0" && *allowed != '\0')) return;
  // Innermost launcher first, and the first that speaks decides: `mpirun -np 1` or `srun -n 1` inside a larger
  // allocation is what it says, while an allocation alone (SLURM_NTASKS in a batch script's shell) started nothing.
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
