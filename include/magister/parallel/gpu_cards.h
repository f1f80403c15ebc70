// GPUs by their usual names with the memory that the driver reports, so that `plan` can calculate for GPUs that are not
// present. Local.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "magister/parallel/layout.h"

namespace magister {

struct GpuCard {
  std::string_view name;  // "A100-80GB"
  int gigabytes;          // nominal, as in the product name
  int mebibytes;          // in total, as shown by nvidia-smi
  int compute_capability;
  std::uint64_t bytes() const { return static_cast<std::uint64_t>(mebibytes) << 20; }
};
std::span<const GpuCard> gpu_cards();
const GpuCard* find_gpu_card(std::string_view name);  // nullptr: the name is unknown
// The cards with this nominal size, such as "A100-80GB (81920 MiB), H100-80GB (81559 MiB)"; empty: there are none.
std::string cards_sold_with(int gigabytes);

// Sets the GPUs of each host of a planned cluster. From then on discover_gpus() returns those of the first host,
// gpus_on_host() is true, and layouts (plan_layout()) are made for all of the hosts. Only for a process that computes
// nothing; call it before any layout, with the same hosts on every rank.
void plan_with_hosts(std::vector<std::vector<GpuDevice>> hosts);
// The planned hosts; empty: no cluster is planned, and the real GPUs are used.
const std::vector<std::vector<GpuDevice>>& planned_hosts();
// How many of num_ranks ranks run on each host where all hosts have that many GPUs: equally many, on as few hosts as
// possible, and no more than there are GPUs for.
int ranks_on_a_host(int num_ranks, int gpus, const LayoutConfig& config);
// The smallest memory of the planned GPUs; 0 if there are none.
std::uint64_t least_planned_bytes();
// A planned GPU. card: its name. Without a known name the GPU has the given bytes and compute capability 9.0.
GpuDevice planned_gpu(std::string_view card, std::uint64_t bytes);

}  // namespace magister
