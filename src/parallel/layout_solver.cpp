// Divides the devices, in order of world rank, into groups of equal size: whole ranks, or parts of one rank.
#include "parallel/layout_solver.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
#include <span>

#include "magister/core/error.h"
#include "magister/core/units_of_measure.h"
#include "magister/parallel/gpu_cards.h"
#include "parallel/layout_mixed.h"

namespace magister {
namespace {

std::string counted(std::int64_t count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

int total(const std::vector<int>& devices) { return std::accumulate(devices.begin(), devices.end(), 0); }

std::string sizes_that_work(const std::vector<int>& devices) {
  std::string sizes;
  for (int size = 1; size <= total(devices); ++size) {
    if (total(devices) % size != 0 || !group_size_divides(devices, size)) continue;
    sizes += fmt::format("{}{}", sizes.empty() ? "" : ", ", size);
  }
  return sizes.empty() ? "nothing" : sizes;
}

// For messages: "4 ranks of 2 devices each", "2 ranks of 4, 8 devices".
std::string counts_of(const std::vector<int>& devices) {
  const std::string ranks = counted(static_cast<std::int64_t>(devices.size()), "rank");
  if (std::adjacent_find(devices.begin(), devices.end(), std::not_equal_to<>()) == devices.end())
    return fmt::format("{} of {} each", ranks, counted(devices[0], "device"));
  constexpr std::size_t kShown = 16;
  const auto shown = std::span(devices).first(std::min(kShown, devices.size()));
  return fmt::format("{} of {}{} devices", ranks, fmt::join(shown, ", "), devices.size() > kShown ? ", ..." : "");
}

// `auto` (0): the devices of one rank; if ranks have different numbers, the largest size that divides all.
int group_size(const std::vector<int>& devices, int gpus_per_group) {
  int size = gpus_per_group;
  for (const int count : devices) size = gpus_per_group == 0 ? std::gcd(size, count) : size;
  MAGISTER_CHECK(
      group_size_divides(devices, size), ExitCode::kConfig,
      "layout.gpus_per_group: {} with {} ({} in all) does not divide: a group must be whole ranks of equally many "
      "devices, or a rank whole groups, and none may be left over (it would hold a piece of a model without the rest); "
      "layout.gpus_per_group may be {} here{}",
      size, counts_of(devices), counted(total(devices), "device"), sizes_that_work(devices),
      total(devices) % std::max(size, 1) == 0
          ? ""
          : fmt::format(", or start ranks for a multiple of {} devices (mpirun -np; plan --ranks)", size));
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
  MAGISTER_CHECK(config.devices_per_rank >= 0 && config.devices_per_rank <= kMostShards, ExitCode::kConfig,
                 "layout.devices_per_rank: {} (a rank drives 1 to {} GPUs); change it", config.devices_per_rank,
                 kMostShards);
}

// All GPUs that a rank sees, for messages: "rank 2 on node7 (local rank 0 of 2) sees cuda:0 GPU-1a2b".
std::string what_it_sees(const RankProbe& rank) {
  std::string text = fmt::format("rank {} on {} (local rank {} of {}) sees ", rank.world_rank, rank.host,
                                 rank.local_rank, rank.local_size);
  if (rank.gpus.empty()) return text + "no GPU";
  for (std::size_t i = 0; i < rank.gpus.size(); ++i) {
    text += fmt::format("{}cuda:{} {}", i == 0 ? "" : ", ", rank.gpus[i].index, rank.gpus[i].uuid);
  }
  return text;
}

using Gpus = std::vector<const GpuDevice*>;

// GPUs from which a rank may choose: all that it sees, or those of layout.devices.
Gpus candidates_of(const RankProbe& rank, const std::vector<int>& wanted) {
  Gpus candidates;
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
                 "{} while other ranks see some (a job cannot mix GPUs and CPUs); give every rank a GPU or set "
                 "layout.devices: cpu",
                 what_it_sees(rank));
  return candidates;
}

// Numbers of ranks that divide the number of GPUs, for messages.
std::string rank_counts_that_work(int gpus) {
  std::string counts;
  for (int ranks = 1; ranks <= gpus; ++ranks) {
    if (gpus % ranks == 0) counts += fmt::format("{}{}", counts.empty() ? "" : ", ", ranks);
  }
  return counts;
}

// Number of GPUs for each of the ranks that choose from the same GPUs.
int gpus_per_rank(const RankProbe& rank, int candidates, int wanted) {
  const int ranks = rank.gpu_size;
  const std::string there =
      fmt::format("{} run on {} with {} to choose from", counted(ranks, "rank"), rank.host, counted(candidates, "GPU"));
  MAGISTER_CHECK(candidates >= ranks, ExitCode::kConfig,
                 "{} (a rank drives at least one, and no two the same): {}; start {} there or ask the scheduler for "
                 "more GPUs",
                 there, what_it_sees(rank), counted(candidates, "rank"));
  MAGISTER_CHECK(wanted <= candidates / ranks, ExitCode::kConfig,
                 "{}, and layout.devices_per_rank: {} needs {}: {}; lower it, or start fewer ranks there", there,
                 wanted, static_cast<std::int64_t>(wanted) * ranks, what_it_sees(rank));
  if (wanted > 0) return wanted;
  MAGISTER_CHECK(candidates % ranks == 0, ExitCode::kConfig,
                 "{}, which do not divide (layout.devices_per_rank: auto gives every rank as many, and leaves none "
                 "idle): {}; start {} ranks there, or set layout.devices_per_rank to {} and leave {} idle",
                 there, what_it_sees(rank), rank_counts_that_work(candidates), candidates / ranks,
                 counted(candidates % ranks, "GPU"));
  return candidates / ranks;
}

// Identifies the kind of card: cards in a group should have the same kind.
std::string card_of(const GpuDevice& gpu) { return fmt::format("{} of {} bytes;", gpu.name, gpu.total_bytes); }

// Sorts GPUs by kind of card, in the order of the first of each kind, because consecutive GPUs form groups.
Gpus by_card(Gpus gpus) {
  std::vector<std::string> kinds;
  for (const GpuDevice* gpu : gpus) {
    if (std::find(kinds.begin(), kinds.end(), card_of(*gpu)) == kinds.end()) kinds.push_back(card_of(*gpu));
  }
  if (kinds.size() < 2) return gpus;
  const auto kind = [&](const GpuDevice* gpu) { return std::find(kinds.begin(), kinds.end(), card_of(*gpu)); };
  std::stable_sort(gpus.begin(), gpus.end(),
                   [&](const GpuDevice* one, const GpuDevice* other) { return kind(one) < kind(other); });
  return gpus;
}

// Gives consecutive GPUs of a host to consecutive ranks, sorted by kind of card unless layout.devices sets the order.
Gpus choose_gpus(const RankProbe& rank, const LayoutConfig& config) {
  Gpus candidates = candidates_of(rank, config.devices);
  if (config.devices.empty()) candidates = by_card(std::move(candidates));
  if (config.share_gpus) return {candidates[static_cast<std::size_t>(rank.local_rank) % candidates.size()]};
  if (candidates.size() == 1 && config.devices_per_rank <= 1) return candidates;
  const int count = gpus_per_rank(rank, static_cast<int>(candidates.size()), config.devices_per_rank);
  const auto first = candidates.begin() + static_cast<std::ptrdiff_t>(rank.gpu_rank) * count;
  return {first, first + count};
}

// The GPUs of each rank, by world rank. Throws Error(kConfig) if two ranks would use one GPU.
std::vector<Gpus> choose_gpus(const std::vector<RankProbe>& ranks, const LayoutConfig& config) {
  std::vector<Gpus> chosen;
  std::map<std::string, const RankProbe*> owner;
  for (const RankProbe& rank : ranks) {
    chosen.push_back(choose_gpus(rank, config));
    for (const GpuDevice* gpu : chosen.back()) {
      const auto [entry, is_new] = owner.emplace(gpu->uuid, &rank);
      MAGISTER_CHECK(is_new || entry->second != &rank, ExitCode::kConfig,
                     "layout.devices gives rank {} on {} the GPU {} twice (each of its threads would take the other's "
                     "memory): {}; name every GPU once",
                     rank.world_rank, rank.host, gpu->uuid, what_it_sees(rank));
      MAGISTER_CHECK(
          is_new || config.share_gpus, ExitCode::kConfig,
          "rank {} on {} and rank {} on {} would both use the GPU {} (each would take the other's memory): {}; {}; "
          "start one rank a GPU, or give each rank its own by CUDA_VISIBLE_DEVICES or --gpu-bind",
          entry->second->world_rank, entry->second->host, rank.world_rank, rank.host, gpu->uuid,
          what_it_sees(*entry->second), what_it_sees(rank));
    }
  }
  return chosen;
}

bool needs_gpus(const std::vector<RankProbe>& ranks, const LayoutConfig& config) {
  MAGISTER_CHECK(!config.cpu_only || config.devices.empty(), ExitCode::kConfig,
                 "layout.devices is cpu and also names GPUs (a run uses one or the other); keep one");
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

std::string describe_gpu(const GpuDevice& gpu) {
  return fmt::format("cuda:{} {} {}", gpu.index, printable(gpu.name), gpu.uuid);
}

// Divides the devices, in order of world rank, into groups of one size.
void place_one_size(LayoutSolution& solution, const std::vector<int>& devices, int gpus_per_group) {
  solution.tp_size = group_size(devices, gpus_per_group);
  solution.num_groups = total(devices) / solution.tp_size;
  solution.groups_of_size = {solution.num_groups};
  int before = 0;  // devices of earlier ranks
  for (const int count : devices) {
    RankPlace place;
    place.group_size = solution.tp_size;
    place.group_index = place.first_of_size = before / solution.tp_size;
    place.first_tp_rank = before % solution.tp_size;
    place.groups = std::max(1, count / solution.tp_size);
    solution.places.push_back(place);
    before += count;
  }
}

// For each rank, the smallest memory of its devices.
std::vector<RankMemory> memory_of(const std::vector<Gpus>& gpus, const std::vector<int>& devices,
                                  const LayoutConfig& config) {
  std::vector<RankMemory> all;
  for (std::size_t r = 0; r < gpus.size(); ++r) {
    RankMemory memory{devices[r], kUnknownMemory, kUnknownMemory, ""};
    for (const GpuDevice* gpu : gpus[r]) {
      if (const std::string card = card_of(*gpu); memory.cards.find(card) == std::string::npos) memory.cards += card;
      const auto kept = config.kept_bytes.find(gpu->uuid);
      memory.total_bytes = std::min(memory.total_bytes, gpu->total_bytes);
      memory.free_bytes =
          std::min(memory.free_bytes, gpu->free_bytes + (kept == config.kept_bytes.end() ? 0 : kept->second));
    }
    all.push_back(memory);
  }
  return all;
}

}  // namespace

bool group_size_divides(const std::vector<int>& devices, int group_size) {
  int begun = 0, of_rank = 0;  // devices of the unfinished group, and devices per rank in it
  for (const int count : devices) {
    if (begun > 0 ? count != of_rank : count % group_size != 0 && group_size % count != 0) return false;
    if (begun == 0 && count % group_size == 0) continue;
    of_rank = count;
    begun = (begun + count) % group_size;
  }
  return begun == 0;
}

std::vector<RankProbe> invented_ranks(const RankProbe& like, int num_ranks, const LayoutConfig& config) {
  const int on_host = like.gpus.empty() || config.cpu_only
                          ? num_ranks
                          : ranks_on_a_host(num_ranks, static_cast<int>(like.gpus.size()), config);
  std::vector<RankProbe> ranks(static_cast<std::size_t>(num_ranks), like);
  for (int r = 0; r < num_ranks; ++r) {
    RankProbe& rank = ranks[static_cast<std::size_t>(r)];
    rank.world_rank = r;
    rank.local_rank = r % on_host;
    rank.local_size = on_host;
    rank.host_index = r / on_host;
    if (rank.host_index == 0) continue;
    rank.host += fmt::format(" ({})", rank.host_index + 1);
    for (GpuDevice& gpu : rank.gpus) gpu.uuid += fmt::format(" ({})", rank.host_index + 1);
  }
  find_gpu_sharers(ranks);
  return ranks;
}

std::string unlike_cards(const std::vector<DeviceRow>& table) {
  constexpr std::size_t kNamed = 8;
  std::map<int, std::vector<const DeviceRow*>> groups;
  for (const DeviceRow& row : table) {
    if (row.gpu) groups[row.group_index].push_back(&row);
  }
  std::vector<std::string> words;
  std::size_t mixed = 0;
  for (const auto& [index, rows] : groups) {
    const auto unlike = [&, first = rows.front()](const DeviceRow* row) {
      return card_of(*row->gpu) != card_of(*first->gpu);
    };
    if (std::none_of(rows.begin(), rows.end(), unlike) || ++mixed > kNamed) continue;
    std::vector<std::string> cards;
    for (const DeviceRow* row : rows)
      cards.push_back(fmt::format("cuda:{} {} of {} on {}", row->gpu->index, printable(row->gpu->name),
                                  format_bytes(row->gpu->total_bytes), printable(row->host)));
    words.push_back(fmt::format("group {}: {}", index, fmt::join(cards, ", ")));
  }
  if (mixed == 0) return "";
  return fmt::format(
      "{} of {} groups of unlike cards: {}{} (such a group is as fast as its slowest card and has as much memory as "
      "the "
      "smallest); name like cards with layout.devices, give each kind groups of its own size by a list in "
      "layout.gpus_per_group, or leave the others out",
      mixed, groups.size(), fmt::join(words, "; "), mixed > kNamed ? "; ..." : "");
}

LayoutSolution solve_layout(const std::vector<RankProbe>& ranks, const LayoutConfig& config) {
  check_ranges(ranks.size(), config);
  LayoutSolution solution;
  solution.on_gpu = needs_gpus(ranks, config);
  MAGISTER_CHECK(!solution.on_gpu || config.shards_per_rank == 1, ExitCode::kConfig,
                 "layout.shards_per_rank: {} on GPUs (shards in threads are for CPUs; a rank's GPUs have a thread each "
                 "by themselves); set it to 1, with layout.devices_per_rank if need be, or layout.devices: cpu",
                 config.shards_per_rank);
  std::vector<Gpus> gpus(ranks.size());
  if (solution.on_gpu) gpus = choose_gpus(ranks, config);
  std::vector<int> devices(ranks.size(), config.shards_per_rank);
  for (std::size_t r = 0; r < ranks.size() && solution.on_gpu; ++r) devices[r] = static_cast<int>(gpus[r].size());
  if (config.shares.mixed()) {
    place_sizes(solution, ranks, memory_of(gpus, devices, config), config);
  } else {
    place_one_size(solution, devices, config.gpus_per_group);
  }
  const std::vector<int> cores = core_shares(ranks);
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    RankPlace& place = solution.places[r];
    place.shards = devices[r];
    place.threads_per_shard = std::max(1, cores[r] / devices[r]);
    for (int shard = 0; shard < devices[r]; ++shard) {
      const GpuDevice* const gpu = solution.on_gpu ? gpus[r][static_cast<std::size_t>(shard)] : nullptr;
      if (gpu != nullptr) place.devices.push_back(gpu->index);
      solution.table.push_back({.world_rank = static_cast<int>(r),
                                .host = ranks[r].host,
                                .group_index = place.group_index + (place.first_tp_rank + shard) / place.group_size,
                                .tp_rank = (place.first_tp_rank + shard) % place.group_size,
                                .device = gpu != nullptr ? describe_gpu(*gpu)
                                                         : fmt::format("cpu shard {} ({})", shard,
                                                                       counted(place.threads_per_shard, "thread")),
                                .gpu = gpu != nullptr ? std::optional(*gpu) : std::nullopt,
                                .group_size = place.group_size});
    }
  }
  return solution;
}

}  // namespace magister
