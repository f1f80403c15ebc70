// Peaks of two passes. Their difference is what tokens cost; the rest, a tile of logits above all, is there once.
#include "magister/run/pass_budget.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "magister/core/log.h"
#include "magister/device/gpu.h"
#include "magister/run/device_group.h"

namespace magister {
namespace {

constexpr std::int64_t kMany = 2048, kFew = 1024;  // both fill whole tiles of logits

std::uint64_t peak_of_pass(Transformer& model, const LogitReducer& reducer, std::int64_t tokens, int device) {
  std::vector<std::vector<TokenId>> sequences(static_cast<std::size_t>(tokens / 256), std::vector<TokenId>(256, 1));
  const std::vector<TokenId> targets(static_cast<std::size_t>(tokens), 0);
  reset_gpu_peak(device);
  const std::uint64_t before = gpu_allocated(device).bytes;
  reducer.finish(reducer.start(model.forward(pack_sequences(sequences)), targets));
  return gpu_allocated(device).peak_bytes - before;
}

}  // namespace

std::int64_t token_budget_of(std::int64_t few, std::uint64_t few_bytes, std::int64_t many, std::uint64_t many_bytes,
                             std::uint64_t free) {
  const double a_token =
      many_bytes > few_bytes ? static_cast<double>(many_bytes - few_bytes) / static_cast<double>(many - few) : 1.0;
  const double once = std::max(0.0, static_cast<double>(few_bytes) - a_token * static_cast<double>(few));
  return std::max(few, static_cast<std::int64_t>(std::min(1e15, (static_cast<double>(free) - once) / a_token)));
}

std::int64_t measured_token_budget(Transformer& model, const LogitReducer& reducer, std::int64_t requested) {
  const gpu::Queue* const queue = model.queue();
  if (queue == nullptr || queue->on_host() || requested <= kMany) return requested;
  const std::uint64_t few = peak_of_layers(model, kFew, queue->device),
                      many = peak_of_layers(model, kMany, queue->device);
  const auto free =
      static_cast<std::uint64_t>(kUsableGpuShare * static_cast<double>(gpu_memory(queue->device).free_bytes));
  ProcessGroup& group = model.group();
  const at::Tensor mine = at::tensor({token_budget_of(kFew, few, kMany, many, free)}, at::kLong).to(group.device());
  const std::int64_t budget = (group.tp_size() == 1 ? mine : group.all_gather(mine)).min().item<std::int64_t>();
  if (budget < requested) {
    log_info("passes of at most {} tokens instead of {}: the GPU's memory holds no more (measured)", budget, requested);
  }
  return std::min(budget, requested);
}

}  // namespace magister
