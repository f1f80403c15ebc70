// The table of cards, and the GPUs of a planned cluster.
// Source of the MiB: the table of nvidia-smi ("...MiB / 81559MiB") in users' posts, several posts per card. If drivers
// report different values for a card, the table has the smallest (V100: 32510 of 32510 and 32768). Posts with both name
// and number: H100-80GB LMCache/LMCache#259 and tests/bench/reports/h100_jobs.md; A100-80GB (and A800)
// vllm-project/vllm#41519; B200 NVIDIA/TensorRT-LLM#10278; RTX4090 RLinf/RLinf#255; RTX5090 noonghunna/club-3090#1261;
// RTX3090 noonghunna/club-3090#1128.
// CUDA gives a process slightly less (A100-40GB: 42,298,834,944 bytes of 42,949,672,960,
// bottlerocket-os/bottlerocket#3873); the reserve of a plan covers the difference. Compute capabilities: NVIDIA's list,
// developer.nvidia.com/cuda-gpus.
#include "magister/parallel/gpu_cards.h"

#include <algorithm>
#include <utility>

#include "magister/core/error.h"
#include "parallel/planned_ranks.h"

namespace magister {
namespace {

constexpr GpuCard kCards[] = {
    {"V100-16GB", 16, 16160, 70},
    {"V100-32GB", 32, 32510, 70},
    {"T4", 16, 15360, 75},
    {"A10", 24, 23028, 86},
    {"A10G", 24, 23028, 86},
    {"A30", 24, 24576, 80},
    {"A40", 48, 46068, 86},
    {"A100-40GB", 40, 40960, 80},
    {"A100-80GB", 80, 81920, 80},
    {"L4", 24, 23034, 89},
    {"L40S", 48, 46068, 89},
    {"H100-80GB", 80, 81559, 90},
    {"H100-NVL", 94, 95830, 90},
    {"GH200-96GB", 96, 97871, 90},
    {"H200", 141, 143771, 90},
    {"B200", 180, 183359, 100},
    {"B300", 288, 275040, 103},
    {"RTX3090", 24, 24576, 86},
    {"RTX4090", 24, 24564, 89},
    {"RTX5090", 32, 32607, 120},
    {"RTX-A4000", 16, 16376, 86},
    {"RTX-A5000", 24, 24564, 86},
    {"RTX-A6000", 48, 49140, 86},
    {"RTX-6000-Ada", 48, 49140, 89},
    {"RTX-PRO-6000", 96, 97887, 120},
};

std::vector<std::vector<GpuDevice>>& hosts_planned() {
  static std::vector<std::vector<GpuDevice>> hosts;
  return hosts;
}

}  // namespace

std::span<const GpuCard> gpu_cards() { return kCards; }

const GpuCard* find_gpu_card(std::string_view name) {
  const auto* const found =
      std::find_if(std::begin(kCards), std::end(kCards), [&](const GpuCard& card) { return card.name == name; });
  return found == std::end(kCards) ? nullptr : found;
}

std::string cards_sold_with(int gigabytes) {
  std::string cards;
  for (const GpuCard& card : kCards) {
    if (card.gigabytes == gigabytes)
      cards += fmt::format("{}{} ({} MiB)", cards.empty() ? "" : ", ", card.name, card.mebibytes);
  }
  return cards;
}

GpuDevice planned_gpu(std::string_view card, std::uint64_t bytes) {
  const GpuCard* const known = find_gpu_card(card);
  GpuDevice gpu;
  gpu.name = known != nullptr ? std::string(card) : "planned";
  gpu.total_bytes = gpu.free_bytes = bytes;
  gpu.compute_capability = known != nullptr ? known->compute_capability : 90;
  return gpu;
}

void plan_with_hosts(std::vector<std::vector<GpuDevice>> hosts) {
  for (std::size_t h = 0; h < hosts.size(); ++h) {
    for (std::size_t i = 0; i < hosts[h].size(); ++i) {
      hosts[h][i].index = static_cast<int>(i);
      hosts[h][i].uuid = fmt::format("planned-{}-{}", h, i);
    }
  }
  hosts_planned() = std::move(hosts);
}

const std::vector<std::vector<GpuDevice>>& planned_hosts() { return hosts_planned(); }

int ranks_on_a_host(int num_ranks, int gpus, const LayoutConfig& config) {
  const int usable = config.devices.empty() ? gpus : static_cast<int>(config.devices.size());
  int ranks = std::clamp(usable / std::max(1, config.devices_per_rank), 1, num_ranks);
  while (num_ranks % ranks != 0) --ranks;
  return ranks;
}

std::uint64_t least_planned_bytes() {
  std::uint64_t least = ~std::uint64_t{0};
  for (const std::vector<GpuDevice>& host : hosts_planned()) {
    for (const GpuDevice& gpu : host) least = std::min(least, gpu.total_bytes);
  }
  return hosts_planned().empty() ? 0 : least;
}

// One rank per GPU, or equally many ranks on each host.
std::vector<RankProbe> planned_ranks(const RankProbe& like, int num_ranks) {
  const std::vector<std::vector<GpuDevice>>& hosts = hosts_planned();
  std::size_t gpus = 0;
  for (const std::vector<GpuDevice>& host : hosts) gpus += host.size();
  const auto ranks_in_all = static_cast<std::size_t>(num_ranks);
  MAGISTER_CHECK(ranks_in_all == gpus || ranks_in_all % hosts.size() == 0, ExitCode::kConfig,
                 "plan.devices: {} ranks on {} hosts with {} GPUs in all (each host starts as many, or one for each of "
                 "its GPUs); change --ranks, or leave it out for a rank a GPU",
                 num_ranks, hosts.size(), gpus);
  std::vector<RankProbe> ranks;
  for (std::size_t h = 0; h < hosts.size(); ++h) {
    const std::size_t here = ranks_in_all == gpus ? hosts[h].size() : ranks_in_all / hosts.size();
    const auto first = static_cast<int>(ranks.size());
    for (std::size_t i = 0; i < here; ++i) {
      RankProbe& rank = ranks.emplace_back(like);
      rank.world_rank = static_cast<int>(ranks.size()) - 1;
      rank.host = fmt::format("node{}", h);
      rank.host_index = first;
      rank.local_rank = static_cast<int>(i);
      rank.local_size = static_cast<int>(here);
      rank.gpus = hosts[h];
    }
  }
  find_gpu_sharers(ranks);
  return ranks;
}

}  // namespace magister
