// Threads of shards; see shard_threads.h.
#include "tasks/shard_threads.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace magister {

void run_shards(const GpuGroup& group, const std::function<void(std::unique_ptr<ProcessGroup>, bool first)>& body) {
  auto groups = make_cpu_process_groups(group.members(), group.shards_per_rank());
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

std::optional<std::uint64_t> draw_for_group(ProcessGroup& group, UnitTickets& tickets, const std::function<bool()>& stop_wanted) {
  std::int64_t index = -1;
  if (group.tp_rank() == 0) {
    if (stop_wanted()) tickets.request_stop();
    if (const auto drawn = tickets.draw()) index = static_cast<std::int64_t>(*drawn);
  }
  if (group.tp_size() > 1) {
    at::Tensor ticket = at::tensor({index}, at::kLong);
    group.broadcast(ticket, 0);
    index = ticket.item<std::int64_t>();
  }
  if (index < 0) return std::nullopt;
  return static_cast<std::uint64_t>(index);
}

}  // namespace magister
