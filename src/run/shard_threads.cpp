// Threads of shards; see shard_threads.h.
#include "magister/run/shard_threads.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>
#include <tuple>
#include <vector>

#include "magister/device/gpu.h"

namespace magister {
namespace {

// NCCL lets several ranks have one GPU from 2.30.3 on, if it is told.
bool nccl_shares_gpus() {
  int major = 0, minor = 0, patch = 0;
  // NOLINTNEXTLINE(bugprone-unchecked-string-to-number-conversion): three small numbers that NCCL wrote
  if (std::sscanf(nccl_version().c_str(), "%d.%d.%d", &major, &minor, &patch) != 3) return false;
  if (std::tie(major, minor, patch) < std::tuple(2, 30, 3)) return false;
  setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0);
  return true;
}

// One rank, one GPU. MAGISTER_SHARE_GPUS=1, a test-only override, lets several ranks have one.
std::vector<std::unique_ptr<ProcessGroup>> gpu_process_groups(const GpuGroup& group) {
  open_gpu(group.device_index());
  std::vector<std::unique_ptr<ProcessGroup>> groups;
  if (group.tp_size() == 1) {
    groups.push_back(make_single_process_group());
  } else if (shares_gpus() && !nccl_shares_gpus()) {
    groups.push_back(
        make_staged_process_group(group.members(), {at::kCUDA, static_cast<c10::DeviceIndex>(group.device_index())}));
  } else {
    groups.push_back(make_nccl_process_group(group.members(), group.device_index(), group.fast_collectives()));
  }
  return groups;
}

}  // namespace

void run_shards(const GpuGroup& group, const std::function<void(std::unique_ptr<ProcessGroup>, bool first)>& body) {
  auto groups =
      group.on_gpu() ? gpu_process_groups(group) : make_cpu_process_groups(group.members(), group.shards_per_rank());
  std::mutex mutex;
  std::exception_ptr first_error;
  const auto live = [&](std::size_t i) {
    try {
      const c10::InferenceMode no_gradients;
      body(std::move(groups[i]), i == 0);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!first_error) first_error = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < groups.size(); ++i) threads.emplace_back(live, i);
  live(0);
  for (std::thread& thread : threads) thread.join();
  if (first_error) std::rethrow_exception(first_error);
}

std::optional<std::uint64_t> claim_for_group(ProcessGroup& group, UnitTickets& tickets,
                                             const std::function<bool()>& stop_wanted) {
  std::int64_t index = -1;
  if (group.tp_rank() == 0) {
    if (stop_wanted()) tickets.request_stop();
    if (const auto claimed = tickets.claim()) index = static_cast<std::int64_t>(*claimed);
  }
  if (group.tp_size() > 1) index = group.broadcast_number(index, 0);
  if (index < 0) return std::nullopt;
  return static_cast<std::uint64_t>(index);
}

}  // namespace magister
