// GPUs by the names that people plan with, and what the driver says they have: `plan` counts with cards that are not there. Local.
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
  int gigabytes;          // as it is sold
  int mebibytes;          // in all, as nvidia-smi shows them
  int compute_capability;
  std::uint64_t bytes() const { return static_cast<std::uint64_t>(mebibytes) << 20; }
};
std::span<const GpuCard> gpu_cards();
const GpuCard* find_gpu_card(std::string_view name);  // nullptr: none is called so
// "A100-80GB (81920 MiB), H100-80GB (81559 MiB)": those that are sold with so many GB; empty: none are.
std::string cards_sold_with(int gigabytes);

// The GPUs of each host of a cluster that is planned. From now on discover_gpus() gives the first one's, gpus_on_host() is true, and layouts
// (plan_layout()) are those of all of them. Only in a process that computes nothing, before any layout; the same on every rank.
void plan_with_hosts(std::vector<std::vector<GpuDevice>> hosts);
// Empty: nothing is planned but what is there.
const std::vector<std::vector<GpuDevice>>& planned_hosts();
// Of all their GPUs: the least memory; 0 where none are planned.
std::uint64_t least_planned_bytes();
// Such a GPU. card: its name; empty: of bytes alone, as new as any.
GpuDevice planned_gpu(std::string_view card, std::uint64_t bytes);

}  // namespace magister
