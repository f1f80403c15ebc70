// Weights read directly into panels, and embeddings into the host's copy. A weight that was read whole and then packed
// was in memory twice, and the buffers between the panels left holes: a fifth of a small model's memory.
#include <ATen/ATen.h>

#include <algorithm>

#include "magister/core/error.h"
#include "magister/model/cpu/panel_memory.h"
#include "magister/model/cpu/panels.h"
#include "magister/model/host_copy.h"
#include "magister/model/weights.h"
#include "magister/parallel/thread_pool.h"
#include "model/cpu/kept_codes.h"

namespace magister {
at::Tensor WeightSource::load_embeddings() {
  const std::string& name = description_.names.embed_tokens;
  const std::int64_t D = description_.config.hidden_size;
  if (copy_ == nullptr) return load_table(name, partition_.vocab, D);
  const PanelBlocks of_host(copy_);
  const at::Tensor out_vD = empty_panels({static_cast<std::int64_t>(partition_.vocab.size()), D}, dtype_);
  {
    const std::lock_guard lock(mutex_);
    used_.insert(name);
  }
  const RowBlock all{name, partition_.vocab};
  fill_panels(of_host.gave_shared(), out_vD.nbytes(),
              [&] { read_blocks({all}, {0, static_cast<std::uint64_t>(D)}, out_vD, false); });
  return out_vD;
}

void WeightSource::fill_panels(bool is_shared, std::uint64_t num_bytes, const std::function<void()>& fill) {
  {
    const std::lock_guard lock(mutex_);
    loaded_bytes_ += num_bytes;
    shared_bytes_ += is_shared ? num_bytes : 0;
  }
  if (is_shared) {
    copy_->fill_once(fill);
  } else {
    fill();
  }
}

Linear WeightSource::load_packed_embeddings() {
  const auto D = static_cast<std::uint64_t>(description_.config.hidden_size);
  return load_packed({{description_.names.embed_tokens, partition_.vocab}},
                     static_cast<std::int64_t>(partition_.vocab.size()), {0, D});
}

Linear WeightSource::load_packed_lm_head() {
  const auto D = static_cast<std::uint64_t>(description_.config.hidden_size);
  const IndexRange rows = partition_.head_rows(description_.config);
  return load_packed({{description_.names.lm_head, rows}}, static_cast<std::int64_t>(rows.size()), {0, D});
}

// A fresh buffer for every part would lie a little above the one before, since the allocator puts small tensors into
// the holes and an aligned block no longer fits: of a small model's heap a sixth was such holes.
at::Tensor WeightSource::take_part(at::IntArrayRef shape) {
  const std::int64_t numbers = c10::multiply_integers(shape);
  at::Tensor part_X;
  {
    const std::lock_guard lock(mutex_);
    if (!spare_parts_.empty()) {
      part_X = std::move(spare_parts_.back());
      spare_parts_.pop_back();
    }
  }
  if (!part_X.defined() || part_X.numel() < numbers) {
    part_X.reset();  // before the larger one is there
    part_X = at::empty({numbers}, at::TensorOptions().dtype(dtype_));
  }
  return part_X.narrow(0, 0, numbers).view(shape);
}

void WeightSource::give_part_back(const at::Tensor& part_RK) {
  const auto numbers = static_cast<std::int64_t>(part_RK.storage().nbytes() / part_RK.element_size());
  const std::lock_guard lock(mutex_);
  spare_parts_.push_back(part_RK.as_strided({numbers}, {1}));
}

Linear WeightSource::load_packed(const std::vector<RowBlock>& blocks, std::int64_t N, IndexRange columns) {
  constexpr std::int64_t kPartBytes = 256 << 10;  // stays in the cache between reading and packing
  MAGISTER_ASSERT(packs_);
  const auto K = static_cast<std::int64_t>(columns.size());
  const PanelBlocks of_host(copy_);
  Linear out = empty_packed(N, K, dtype_);
  const auto row_bytes = K * static_cast<std::int64_t>(c10::elementSize(dtype_));
  {
    const std::lock_guard lock(mutex_);
    for (const RowBlock& block : blocks) used_.insert(block.tensor);
  }
  // A part of a transposed tensor, or of codes that are packed along the outputs, reads all of it: there are few.
  const bool is_read_whole = file_.dequantizes() || blocks.front().transposed;
  const std::int64_t even = even_part(N),
                     small = std::max(Linear::kPanel, kPartBytes / std::max<std::int64_t>(row_bytes, 1));
  const std::vector<RowBlock> parts = divided(blocks, is_read_whole ? even : std::min(even, small));
  fill_panels(of_host.gave_shared(), static_cast<std::uint64_t>(N * row_bytes), [&] {
    clear_padding(out);
    on_threads(pool_, static_cast<std::int64_t>(parts.size()), [&](std::int64_t index) {
      const RowBlock& block = parts[static_cast<std::size_t>(index)];
      const at::Tensor part_RK = take_part({block.outputs(), K});
      read_block(block, columns, part_RK);
      pack_rows(part_RK, block.output, out);
      if (!is_read_whole) give_part_back(part_RK);
    });
  });
  return out;
}

}  // namespace magister
