// The measurement runs the layers only, since they give the cost of a token: 119 KB for an 8B model. A tile of logits
// takes as much memory as thousands of tokens, but is allocated once. A measurement with the head would show almost no
// cost per token, so the head is computed from its sizes.
#include "magister/tasks/teacher_logits/pass_budget.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "magister/core/log.h"
#include "magister/device/gpu.h"
#include "magister/runtime/device_group.h"

namespace magister {
namespace {

// Both are multiples of the tile of the products (2,048 rows); a partly filled tile costs as much as a full one.
constexpr std::int64_t kMany = 4096, kFew = 2048;

std::uint64_t peak_of_layers(Transformer& model, std::int64_t tokens, int device) {
  const std::vector<std::vector<TokenId>> sequences(static_cast<std::size_t>(tokens / 256),
                                                    std::vector<TokenId>(256, 1));
  reset_gpu_peak(device);
  const std::uint64_t before = gpu_allocated(device).bytes;
  const at::Tensor hidden_TD = model.forward(pack_sequences(sequences));
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

std::int64_t tokens_of_head(std::int64_t hidden_size, const LogitReducer& reducer, std::uint64_t free) {
  // After the layers, memory holds the hidden states (f32 at most), the kept numbers and one tile. The factor 2 is for
  // those of the previous pass, which are still being copied.
  const auto a_token = 2 * (static_cast<std::uint64_t>(hidden_size) * sizeof(float) + reducer.bytes_of_row());
  return static_cast<std::int64_t>((free - std::min(free, reducer.scratch_bytes())) / a_token);
}

std::int64_t measured_token_budget(Transformer& model, const LogitReducer& reducer, std::int64_t requested) {
  const gpu::Queue* const queue = model.queue();
  if (queue == nullptr || queue->on_host() || requested <= kMany) return requested;
  const std::uint64_t few = peak_of_layers(model, kFew, queue->device),
                      many = peak_of_layers(model, kMany, queue->device);
  const auto free =
      static_cast<std::uint64_t>(kUsableGpuShare * static_cast<double>(gpu_memory(queue->device).free_bytes));
  ProcessGroup& group = model.group();
  const std::int64_t layers = token_budget_of(kFew, few, kMany, many, free),
                     head = tokens_of_head(model.config().hidden_size, reducer, free);
  const std::int64_t budget = group.least_number(std::max(kFew, std::min(layers, head)));
  if (budget < requested) {
    log_info("passes of at most {} tokens instead of {}: the GPU's memory holds no more (measured)", budget, requested);
  }
  return std::min(budget, requested);
}

}  // namespace magister
