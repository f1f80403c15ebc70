// The layout solved from what every rank reports of itself: host, cores, devices.
#include "magister/parallel/layout.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "magister/core/error.h"
#include "magister/parallel/thread_pool.h"

namespace magister {
namespace {

// Hexadecimal picture of the cores this process may run on: ranks with equal pictures share those cores.
std::string affinity() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  sched_getaffinity(0, sizeof mask, &mask);
  std::string picture;
  for (std::size_t i = 0; i < sizeof mask; ++i) picture += fmt::format("{:02x}", reinterpret_cast<unsigned char*>(&mask)[i]);
  return picture.substr(0, picture.find_last_not_of('0') + 1);
}

std::string sizes_that_work(int num_devices) {
  std::string sizes;
  for (int size = 1; size <= num_devices; ++size) {
    if (num_devices % size == 0) sizes += fmt::format("{}{}", sizes.empty() ? "" : ", ", size);
  }
  return sizes;
}

// Devices of a group; throws when the layout does not divide.
int group_size(int num_ranks, const LayoutConfig& config) {
  const int num_devices = num_ranks * config.shards_per_rank;
  const int size = config.gpus_per_group == 0 ? config.shards_per_rank : config.gpus_per_group;
  MAGISTER_CHECK(num_devices % size == 0, ExitCode::kConfig,
                 "layout: {} ranks with {} shards each are {} devices, which {} devices a group do not divide (some ranks "
                 "would hold a piece of a model and no group); layout.gpus_per_group may be {} here",
                 num_ranks, config.shards_per_rank, num_devices, size, sizes_that_work(num_devices));
  MAGISTER_CHECK(size % config.shards_per_rank == 0, ExitCode::kConfig,
                 "layout: a group of {} devices is no whole number of ranks with {} shards each (one rank would belong to "
                 "two groups); choose a multiple of layout.shards_per_rank", size, config.shards_per_rank);
  return size;
}

std::vector<DeviceRow> rows_for(int num_ranks, const LayoutConfig& config, int size,
                                const std::vector<std::string>& hosts, const std::vector<int>& threads) {
  std::vector<DeviceRow> rows;
  for (int rank = 0; rank < num_ranks; ++rank) {
    for (int shard = 0; shard < config.shards_per_rank; ++shard) {
      const int device = rank * config.shards_per_rank + shard;
      const int count = threads[static_cast<std::size_t>(rank)];
      rows.push_back({rank, hosts[static_cast<std::size_t>(rank)], device / size, device % size,
                      fmt::format("cpu shard {} ({} thread{})", shard, count, count == 1 ? "" : "s")});
    }
  }
  return rows;
}

}  // namespace

GpuGroup GpuGroup::resolve(const Communicator& world, const LayoutConfig& config) {
  refuse_singleton_launch(world.size());
  MAGISTER_CHECK(config.devices.empty(), ExitCode::kConfig,
                 "layout.devices names GPUs, but this version computes on CPUs only (the GPU path is not built yet); set "
                 "layout.devices: auto or cpu");
  const int size = group_size(world.size(), config);
  // Threads: the cores of this rank, divided by the ranks of this host that may use the very same cores.
  const std::string place = host_name() + " " + affinity();
  const auto places = world.all_gather(place);
  const int sharing = static_cast<int>(std::count(places.begin(), places.end(), place));
  GpuGroup group;
  group.shards_per_rank_ = config.shards_per_rank;
  group.threads_per_shard_ = std::max(1, usable_cores() / (sharing * config.shards_per_rank));
  group.tp_size_ = size;
  const int first_device = world.rank() * config.shards_per_rank;
  group.num_groups_ = world.size() * config.shards_per_rank / size;
  group.group_index_ = first_device / size;
  group.first_tp_rank_ = first_device % size;
  group.members_ = world.split(group.group_index_, world.rank());
  std::vector<int> threads;
  for (const std::uint64_t count : world.all_gather(static_cast<std::uint64_t>(group.threads_per_shard_))) {
    threads.push_back(static_cast<int>(count));
  }
  group.table_ = rows_for(world.size(), config, size, world.all_gather(host_name()), threads);
  return group;
}

std::vector<DeviceRow> plan_layout(int num_ranks, const LayoutConfig& config) {
  const int size = group_size(num_ranks, config);
  const auto ranks = static_cast<std::size_t>(num_ranks);
  const int threads = std::max(1, usable_cores() / (num_ranks * config.shards_per_rank));
  return rows_for(num_ranks, config, size, std::vector<std::string>(ranks, host_name()), std::vector<int>(ranks, threads));
}

void refuse_singleton_launch(int world_size) {
  if (world_size != 1 || std::getenv("MAGISTER_ALLOW_SINGLETON") != nullptr) return;
  for (const char* name : {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || std::atoi(value) <= 1) continue;
    fail(ExitCode::kUsage,
         "MPI sees one rank, but {} is {} (the launcher and this MPI do not know each other, so each rank would run the "
         "whole experiment alone); start with mpirun or srun --mpi=pmix, or set MAGISTER_ALLOW_SINGLETON=1 if one rank is "
         "meant", name, value);
  }
}

}  // namespace magister
