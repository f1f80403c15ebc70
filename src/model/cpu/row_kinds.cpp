#include "model/cpu/row_kinds.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace magister {
namespace {

bool is_text(const PackedBatch& batch, std::int64_t sequence) {
  return !batch.is_decode_S.empty() && batch.is_decode_S[static_cast<std::size_t>(sequence)] != 0;
}

// Keeps the sequences with this flag.
PartOfBatch part_of(const PackedBatch& batch, const std::vector<BlockTable>& slots, bool texts) {
  PartOfBatch part;
  std::vector<std::int64_t> taken, returned, read;
  part.batch.cu_seqlens = {0};
  for (std::int64_t s = 0; s < batch.num_sequences(); ++s) {
    if (is_text(batch, s) != texts) continue;
    const std::int64_t begin = batch.cu_seqlens[static_cast<std::size_t>(s)],
                       end = batch.cu_seqlens[static_cast<std::size_t>(s) + 1];
    part.batch.cu_seqlens.push_back(part.batch.cu_seqlens.back() + end - begin);
    part.batch.past_S.push_back(batch.past(s));
    part.batch.is_decode_S.push_back(texts ? 1 : 0);
    part.slots.push_back(slots[static_cast<std::size_t>(s)]);
    for (std::int64_t row = begin; row < end; ++row) {
      if (!batch.read_rows) {
        returned.push_back(row);
      } else if (const auto found = std::lower_bound(batch.read_rows->begin(), batch.read_rows->end(), row);
                 found != batch.read_rows->end() && *found == row) {
        returned.push_back(found - batch.read_rows->begin());
        read.push_back(static_cast<std::int64_t>(taken.size()));
      }
      taken.push_back(row);
    }
  }
  const at::Tensor rows_T = at::tensor(taken, at::kLong);
  part.batch.token_ids_T = batch.token_ids_T.index_select(0, rows_T);
  part.batch.positions_T = batch.positions_T.index_select(0, rows_T);
  if (batch.read_rows) part.batch.read_rows = std::move(read);
  part.rows_R = at::tensor(returned, at::kLong);
  return part;
}

}  // namespace

RowKind kind_of_rows(const PackedBatch& batch) {
  const auto& flags = batch.is_decode_S;
  const bool texts = !flags.empty() && std::find(flags.begin(), flags.end(), 0) == flags.end();
  return texts ? RowKind::kText : RowKind::kPrompt;
}

std::vector<PartOfBatch> parts_by_kind(const PackedBatch& batch, const std::vector<BlockTable>& slots) {
  const auto texts =
      std::count_if(batch.is_decode_S.begin(), batch.is_decode_S.end(), [](std::uint8_t flag) { return flag != 0; });
  std::vector<PartOfBatch> parts;
  if (texts < batch.num_sequences()) parts.push_back(part_of(batch, slots, false));
  if (texts > 0) parts.push_back(part_of(batch, slots, true));
  return parts;
}

}  // namespace magister
