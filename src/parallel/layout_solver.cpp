// Devices in order of world rank, cut into groups of equal size.
#include "parallel/layout_solver.h"

#include <algorithm>
#include <cstdint>
#include <map>

#include "magister/core/error.h"

namespace magister {
namespace {

std::string counted(std::int64_t count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

// Group sizes for which every group holds whole ranks and no rank is left over.
std::string sizes_that_work(int num_ranks, int shards_per_rank) {
  std::string sizes;
  for (int ranks = 1; ranks <= num_ranks; ++ranks) {
    if (num_ranks % ranks == 0) sizes += fmt::format("{}{}", sizes.empty() ? "" : ", ", ranks * shards_per_rank);
  }
  return sizes;
}

int group_size(int num_ranks, int shards_per_rank, int gpus_per_group) {
  const int size = gpus_per_group == 0 ? shards_per_rank : gpus_per_group;
  const int num_devices = num_ranks * shards_per_rank;
  MAGISTER_CHECK(
      size % shards_per_rank == 0 && num_devices % size == 0, ExitCode::kConfig,
      "layout.gpus_per_group: {} with {} and layout.shards_per_rank: {} ({} in all) does not divide: a group must be "
      "whole ranks and no rank may be left over (it would hold a piece of a model without the rest); "
      "layout.gpus_per_group may be {} here",
      size, counted(num_ranks, "rank"), shards_per_rank, counted(num_devices, "device"),
      sizes_that_work(num_ranks, shards_per_rank));
  return size;
}

void check_ranges(std::size_t num_ranks, const LayoutConfig& config) {
  constexpr int kMostShards = 1024;
  MAGISTER_CHECK(num_ranks >= 1 && num_ranks <= 1'000'000, ExitCode::kConfig,
                 "a layout of {} ranks (there is work for 1 to 1000000); change -np or --ranks", num_ranks);
  MAGISTER_CHECK(config.shards_per_rank >= 1 && config.shards_per_rank <= kMostShards, ExitCode::kConfig,
                 "layout.shards_per_rank: {} (a rank holds 1 to {} shards); change it", config.shards_per_rank,
                 kMostShards);
  MAGISTER_CHECK(config.gpus_per_group >= 0, ExitCode::kConfig,
                 "layout.gpus_per_group: {} (a group has devices); use auto or a positive number",
                 config.gpus_per_group);
}

// Every GPU that a rank sees, for messages: "rank 2 on node7 (local rank 0 of 2) sees cuda:0 GPU-1a2b".
std::string what_it_sees(const RankProbe& rank) {
  std::string text = fmt::format("rank {} on {} (local rank {} of {}) sees ", rank.world_rank, rank.host,
                                 rank.local_rank, rank.local_size);
  if (rank.gpus.empty()) return text + "no GPU";
  for (std::size_t i = 0; i < rank.gpus.size(); ++i) {
    text += fmt::format("{}cuda:{} {}", i == 0 ? "" : ", ", rank.gpus[i].index, rank.gpus[i].uuid);
  }
  return text;
}

// The GPU of one rank: its only one, or the one of its place on the host.
const GpuDevice& choose_gpu(const RankProbe& rank, const std::vector<int>& wanted, bool share) {
  std::vector<const GpuDevice*> candidates;
  for (const GpuDevice& gpu : rank.gpus) {
    if (wanted.empty()) candidates.push_back(&gpu);
  }
  for (const int index : wanted) {
    const auto found =
        std::find_if(rank.gpus.begin(), rank.gpus.end(), [&](const GpuDevice& gpu) { return gpu.index == index; });
    MAGISTER_CHECK(
        found != rank.gpus.end(), ExitCode::kConfig,
        "layout.devices names {}, but {} (the numbers are those of the CUDA runtime after CUDA_VISIBLE_DEVICES); "
        "change the list or the job's GPUs",
        index, what_it_sees(rank));
    candidates.push_back(&*found);
  }
  MAGISTER_CHECK(!candidates.empty(), ExitCode::kConfig,
                 "{} while other ranks see some (a group cannot mix GPUs and CPUs); give every rank a GPU or set "
                 "layout.devices: cpu",
                 what_it_sees(rank));
  if (candidates.size() == 1) return *candidates[0];
  if (share) return *candidates[static_cast<std::size_t>(rank.local_rank) % candidates.size()];
  MAGISTER_CHECK(
      static_cast<int>(candidates.size()) >= rank.local_size, ExitCode::kConfig,
      "{} run on {} with {} to choose from (one rank drives one GPU): {}; start {} there or ask the scheduler for "
      "more GPUs",
      counted(rank.local_size, "rank"), rank.host, counted(static_cast<std::int64_t>(candidates.size()), "GPU"),
      what_it_sees(rank), counted(static_cast<std::int64_t>(candidates.size()), "rank"));
  return *candidates[static_cast<std::size_t>(rank.local_rank)];
}

// By world rank; throws when two ranks would share a GPU.
std::vector<const GpuDevice*> choose_gpus(const std::vector<RankProbe>& ranks, const std::vector<int>& wanted,
                                          bool share) {
  std::vector<const GpuDevice*> chosen;
  std::map<std::string, const RankProbe*> owner;
  for (const RankProbe& rank : ranks) {
    const GpuDevice& gpu = choose_gpu(rank, wanted, share);
    const auto [entry, is_new] = owner.emplace(gpu.uuid, &rank);
    MAGISTER_CHECK(
        is_new || share, ExitCode::kConfig,
        "rank {} on {} and rank {} on {} would both use the GPU {} (each would take the other's memory): {}; {}; "
        "start one rank a GPU, or give each rank its own by CUDA_VISIBLE_DEVICES or --gpu-bind",
        entry->second->world_rank, entry->second->host, rank.world_rank, rank.host, gpu.uuid,
        what_it_sees(*entry->second), what_it_sees(rank));
    chosen.push_back(&gpu);
  }
  return chosen;
}

bool wants_gpus(const std::vector<RankProbe>& ranks, const LayoutConfig& config) {
  MAGISTER_CHECK(!config.cpu_only || config.devices.empty(), ExitCode::kConfig,
                 "layout.devices says cpu and names GPUs (one or the other); keep one");
  if (config.cpu_only) return false;
  if (!config.gpus_usable) {
    MAGISTER_CHECK(config.devices.empty(), ExitCode::kConfig,
                   "layout.devices names {}, but this task computes on CPUs only (no GPU would be used); set "
                   "layout.devices: auto or cpu",
                   counted(static_cast<std::int64_t>(config.devices.size()), "GPU"));
    return false;
  }
  if (!config.devices.empty()) return true;
  return std::any_of(ranks.begin(), ranks.end(), [](const RankProbe& rank) { return !rank.gpus.empty(); });
}

}  // namespace

LayoutSolution solve_layout(const std::vector<RankProbe>& ranks, const LayoutConfig& config) {
  check_ranges(ranks.size(), config);
  LayoutSolution solution;
  solution.on_gpu = wants_gpus(ranks, config);
  MAGISTER_CHECK(
      !solution.on_gpu || config.shards_per_rank == 1, ExitCode::kConfig,
      "layout.shards_per_rank: {} on GPUs (one rank drives one GPU; shards in threads are for CPUs); set it to 1 or "
      "layout.devices: cpu",
      config.shards_per_rank);
  const int num_ranks = static_cast<int>(ranks.size()), shards = config.shards_per_rank;
  solution.shards_per_rank = shards;
  solution.tp_size = group_size(num_ranks, shards, config.gpus_per_group);
  solution.num_groups = num_ranks * shards / solution.tp_size;
  std::vector<const GpuDevice*> gpus;
  if (solution.on_gpu) gpus = choose_gpus(ranks, config.devices, config.share_gpus);
  const std::vector<int> cores = core_shares(ranks);
  for (int r = 0; r < num_ranks; ++r) {
    const auto at = static_cast<std::size_t>(r);
    RankPlace place{r * shards / solution.tp_size, r * shards % solution.tp_size, std::max(1, cores[at] / shards), -1};
    if (solution.on_gpu) place.device_index = gpus[at]->index;
    for (int shard = 0; shard < shards; ++shard) {
      const std::string device =
          solution.on_gpu ? fmt::format("cuda:{} {} {}", gpus[at]->index, printable(gpus[at]->name), gpus[at]->uuid)
                          : fmt::format("cpu shard {} ({})", shard, counted(place.threads_per_shard, "thread"));
      solution.table.push_back({r, ranks[at].host, place.group_index, place.first_tp_rank + shard, device});
    }
    solution.places.push_back(place);
  }
  return solution;
}

}  // namespace magister
