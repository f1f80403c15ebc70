// Rows of prompts and rows of texts that are being written, which multiply codes differently (RowKind).
#pragma once

#include <vector>

#include "magister/model/batch.h"
#include "magister/model/cpu/matmul.h"
#include "magister/model/kv_pages.h"

namespace magister {

// kText if all sequences of the batch are texts that are being written, else kPrompt.
RowKind kind_of_rows(const PackedBatch& batch);

// The sequences of one kind of a batch.
struct PartOfBatch {
  PackedBatch batch;
  std::vector<BlockTable> slots;
  at::Tensor rows_R;  // i64: the rows that a pass of the whole batch returns and this part's pass returns, in order
};

// The batch in one part, or in two if it has sequences of both kinds: first those of prompts. slots: of its sequences.
std::vector<PartOfBatch> parts_by_kind(const PackedBatch& batch, const std::vector<BlockTable>& slots);

}  // namespace magister
