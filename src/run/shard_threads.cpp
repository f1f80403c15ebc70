// See shard_threads.h.
#include "magister/run/shard_threads.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <cstdio>
#include <cstdlib>
#include <tuple>
#include <utility>
#include <vector>

#include "magister/device/gpu.h"
#include "magister/device/launch.h"
#include "magister/parallel/side_by_side.h"

namespace magister {
namespace {

// True if NCCL lets several ranks share a GPU (2.30.3 and later); sets the environment variable that it needs for this.
bool nccl_shares_gpus() {
  int major = 0, minor = 0, patch = 0;
  // NOLINTNEXTLINE(bugprone-unchecked-string-to-number-conversion): three small numbers that NCCL wrote
  if (std::sscanf(nccl_version().c_str(), "%d.%d.%d", &major, &minor, &patch) != 3) return false;
  if (std::tie(major, minor, patch) < std::tuple(2, 30, 3)) return false;
  setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0);
  return true;
}

using Groups = std::vector<std::unique_ptr<ProcessGroup>>;

// One process group for each GPU. MAGISTER_SHARE_GPUS=1, an override for tests only, lets several ranks share a GPU.
Groups gpu_process_groups(const GpuGroup& group, const std::vector<int>& devices) {
  open_gpu(devices.front());
  if (group.tp_size() > 1) {
    return shares_gpus() && !nccl_shares_gpus()
               ? make_staged_process_groups(group.members(), devices)
               : make_nccl_process_groups(group.members(), devices, group.fast_collectives());
  }
  Groups one;
  one.push_back(make_single_process_group({at::kCUDA, static_cast<c10::DeviceIndex>(devices.front())}));
  return one;
}

// The process groups of this rank's shards in one group; `first` is the index of its first shard in the rank.
Groups process_groups(const GpuGroup& group, int first, int shards) {
  if (!group.on_gpu() || gpus_on_host()) return make_cpu_process_groups(group.members(), shards);
  const auto begin = group.devices().begin() + first;
  return gpu_process_groups(group, {begin, begin + shards});
}

}  // namespace

void run_shards(const GpuGroup& group, UnitTickets& tickets,
                const std::function<void(std::unique_ptr<ProcessGroup>, ShardPlace place)>& body) {
  const int shards = group.shards_here() / group.groups_here();  // of one group on this rank
  Groups all;
  for (int g = 0; g < group.groups_here(); ++g) {
    for (auto& one : process_groups(group, g * shards, shards)) all.push_back(std::move(one));
  }
  run_side_by_side(all.size(), [&](std::size_t i) {
    try {
      const c10::InferenceMode no_gradients;
      if (group.on_gpu() && !gpus_on_host()) open_gpu(group.devices()[i]);
      if (group.on_gpu() && !gpus_on_host() && group.tp_size() > 1) gpu::load_kernels();
      const auto place = static_cast<int>(i);
      body(std::move(all[i]), {place / shards, place % shards == 0});
    } catch (...) {
      tickets.give_up();
      throw;
    }
  });
}

GroupClaim claim_another(ProcessGroup& group, UnitTickets& tickets, const std::function<bool()>& stop_wanted,
                         bool may_hold_more) {
  constexpr std::int64_t kNoneLeft = -1, kLater = -2;
  std::int64_t index = kNoneLeft;
  if (group.tp_rank() == 0) {
    if (stop_wanted()) tickets.request_stop();
    if (!may_hold_more) {
      index = kLater;
    } else if (const auto claimed = tickets.claim()) {
      index = static_cast<std::int64_t>(*claimed);
    }
  }
  if (group.tp_size() > 1) index = group.broadcast_number(index, 0);
  if (index < 0) return {{}, index == kNoneLeft};
  return {static_cast<std::uint64_t>(index)};
}

std::optional<std::uint64_t> claim_for_group(ProcessGroup& group, UnitTickets& tickets,
                                             const std::function<bool()>& stop_wanted) {
  return claim_another(group, tickets, stop_wanted, true).unit;
}

}  // namespace magister
