// The head on a GPU: logits of 1,024 rows by cuBLAS in f32, then one kernel pass over them (gpu/head_kernel.h).
#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "engine/gpu/head_kernel.h"
#include "magister/device/upload.h"
#include "magister/engine/logit_reducer.h"

namespace magister {
namespace {

// A sort takes about 30 bytes per logit; sorting a whole tile would take the memory of six tiles, which no plan
// contains.
constexpr std::int64_t kSortedRows = 16;

void sort_rows(const at::Tensor& logits_Rv, std::int64_t vocab_begin, const at::Tensor& share_RK) {
  // The sort would put NaN first; the kernel never makes it a candidate.
  const at::Tensor numbers_Rv = logits_Rv.masked_fill(logits_Rv.isnan(), -std::numeric_limits<float>::infinity());
  const auto [values, ids] = at::sort(numbers_Rv, /*stable=*/true, /*dim=*/-1, /*descending=*/true);
  const std::int64_t keep = share_RK.size(1);
  const at::Tensor bits = values.narrow(1, 0, keep).contiguous().view(at::kInt).to(at::kLong).bitwise_and(0xffffffffLL);
  const at::Tensor packed = (ids.narrow(1, 0, keep) + vocab_begin).bitwise_left_shift(32).bitwise_or(bits);
  const at::Tensor hole =
      at::scalar_tensor(static_cast<std::int64_t>(0xffffffffff800000ULL), packed.options());  // {-inf, -1}
  share_RK.copy_(at::where(values.narrow(1, 0, keep).isneginf(), hole, packed));
}

// Candidates for rows that keep more than fits the kernel's shared memory: a stable sort; in a tie the lower id first.
void sort_candidates(const at::Tensor& logits_Rv, std::int64_t vocab_begin, const at::Tensor& share_RK) {
  for (std::int64_t begin = 0; begin < logits_Rv.size(0); begin += kSortedRows) {
    const std::int64_t rows = std::min(kSortedRows, logits_Rv.size(0) - begin);
    sort_rows(logits_Rv.narrow(0, begin, rows), vocab_begin, share_RK.narrow(0, begin, rows));
  }
}

}  // namespace

at::Tensor LogitReducer::shares_on_gpu(const at::Tensor& hidden_TD, std::span<const TokenId> targets_T) const {
  const std::int64_t T = hidden_TD.size(0), width = row_width(), v = head_.projection.out_features();
  const at::Tensor targets =
      upload(at::tensor(at::ArrayRef<TokenId>(targets_T.data(), targets_T.size()), at::kInt), hidden_TD.device());
  at::Tensor share_TW = at::empty({T, width}, hidden_TD.options().dtype(at::kLong));
  const bool sorts = keep_ > gpu::ReduceLogits::kMostKept;
  for (std::int64_t begin = 0; begin < T; begin += kLogitRows) {
    const std::int64_t rows = std::min(kLogitRows, T - begin);
    // The number of rows is always the same (padded), because cuBLAS chooses its order of sums by the number of rows.
    at::Tensor hidden_RD = hidden_TD.narrow(0, begin, rows);
    if (rows < kLogitRows) hidden_RD = at::constant_pad_nd(hidden_RD, {0, 0, 0, kLogitRows - rows});
    const at::Tensor logits_Rv = logits_of(head_, hidden_RD, pool_).narrow(0, 0, rows);
    const gpu::ReduceLogits kernel{logits_Rv.const_data_ptr<float>(),
                                   targets.const_data_ptr<std::int32_t>() + begin,
                                   share_TW.data_ptr<std::int64_t>() + begin * width,
                                   v,
                                   static_cast<std::int64_t>(head_.vocab.begin),
                                   width,
                                   sorts ? 0 : static_cast<int>(keep_)};
    gpu::launch(kernel, kernel.shape(rows), *head_.queue);
    if (sorts)
      sort_candidates(logits_Rv, static_cast<std::int64_t>(head_.vocab.begin),
                      share_TW.narrow(0, begin, rows).narrow(1, kNumbers, keep_));
  }
  return share_TW;
}

}  // namespace magister
