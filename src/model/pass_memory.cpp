// On a GPU a place of the size that is planned for the pass is taken and given back: the allocator keeps it, and the pass is cut out of it.
#include "magister/model/pass_memory.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <string>

#include "magister/core/error.h"
#include "magister/device/gpu.h"
#include "magister/device/upload.h"
#include "magister/model/partition.h"

namespace magister {

bool PassMemory::fits_here(const Size& size) const {
  if (refuses_()) return false;
  const gpu::Queue* const queue = model_.queue();
  if (queue == nullptr || queue->on_host()) return true;
  const Partition part = partition_for(model_.config(), model_.group().tp_rank(), model_.group().tp_size());
  const at::ScalarType dtype = model_.lm_head().projection.weight_NK.scalar_type();
  std::uint64_t bytes = gpu_activation_bytes(model_.config(), part, size.tokens, size.sequence_tokens, dtype) +
                        static_cast<std::uint64_t>(3 * size.logit_rows) * part.vocab.size() * sizeof(float);
  if (size.sequence_tokens > 0)
    bytes += gpu_gathered_bytes(model_.config(), part, size.tokens, size.sequence_tokens, dtype);
  try {
    const at::Tensor place =
        at::empty({static_cast<std::int64_t>(bytes)}, at::TensorOptions().dtype(at::kByte).device(device_of(*queue)));
    return place.defined();
  } catch (const c10::OutOfMemoryError&) {
    return false;
  }
}

bool PassMemory::fits_everywhere(const Size& size) {
  if (size.tokens <= known_.tokens && size.sequence_tokens <= known_.sequence_tokens &&
      size.logit_rows <= known_.logit_rows)
    return true;
  ProcessGroup& group = model_.group();
  const at::Tensor mine = at::tensor({fits_here(size) ? 1 : 0}, at::kLong).to(group.device());
  if (group.all_gather(mine).min().item<std::int64_t>() == 0) return false;
  known_ = {std::max(size.tokens, known_.tokens), std::max(size.sequence_tokens, known_.sequence_tokens),
            std::max(size.logit_rows, known_.logit_rows)};
  return true;
}

std::string PassMemory::run(const Size& size, const std::function<void()>& pass) {
  if (model_.group().tp_size() > 1) {
    if (!fits_everywhere(size)) return "a shard of the group has none";
    pass();
    return "";
  }
  try {
    TORCH_CHECK_WITH(OutOfMemoryError, !refuses_(), "a test asked for it");
    pass();
    return "";
  } catch (const c10::OutOfMemoryError& error) {
    return printable(error.msg(), 300);
  }
}

}  // namespace magister
