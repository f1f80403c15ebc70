// The kernel of LogitReducer finds the best tokens; the kernel for judges (wanted_kernel.h) reads their logits and sums
// the row.
#include "engine/gpu_candidates.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/gpu/head_kernel.h"
#include "engine/gpu/wanted_kernel.h"
#include "magister/core/error.h"
#include "magister/device/upload.h"

namespace magister {

const std::int64_t kMostGpuCandidates = gpu::ReduceLogits::kMostKept;

namespace {

// Applies bias and penalty to the rows in place, with the same numbers as LogitsChain, so that no second copy of the
// rows is needed.
class ChangedRows {
 public:
  ChangedRows(const at::Tensor& logits_RV, const std::vector<RowHistory>& histories, const SamplingParams& params)
      : flat_(logits_RV.view({-1})) {
    const std::int64_t V = logits_RV.size(1);
    std::vector<std::int64_t> biased, seen;
    std::vector<float> bias;
    for (std::size_t r = 0; r < histories.size(); ++r) {
      const std::int64_t first = static_cast<std::int64_t>(r) * V;
      for (const auto& [id, added] : params.logit_bias) {
        biased.push_back(first + id);
        bias.push_back(added);
      }
      if (params.repetition_penalty == 1.0) continue;
      const auto begin = static_cast<std::ptrdiff_t>(seen.size());
      for (const TokenId id : histories[r].tokens) seen.push_back(first + id);
      std::sort(seen.begin() + begin, seen.end());
      seen.erase(std::unique(seen.begin() + begin, seen.end()), seen.end());
    }
    const auto there = [&](const at::Tensor& numbers) { return upload(numbers, flat_.device()); };
    places_N = there(at::tensor(biased.empty() ? seen : joined(biased, seen), at::kLong));
    before_N = flat_.index_select(0, places_N);
    if (!biased.empty()) {
      const at::Tensor places = there(at::tensor(biased, at::kLong));
      flat_.index_copy_(0, places, flat_.index_select(0, places) + there(at::tensor(bias, at::kFloat)));
    }
    if (!seen.empty()) {
      const at::Tensor places = there(at::tensor(seen, at::kLong));
      const at::Tensor logits = flat_.index_select(0, places).to(at::kDouble);
      const double penalty = params.repetition_penalty;
      flat_.index_copy_(0, places, at::where(logits > 0, logits / penalty, logits * penalty).to(at::kFloat));
    }
  }
  bool any() const { return places_N.numel() > 0; }
  void undo() const { flat_.index_copy_(0, places_N, before_N); }

 private:
  static std::vector<std::int64_t> joined(std::vector<std::int64_t> a, const std::vector<std::int64_t>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }

  mutable at::Tensor flat_;
  at::Tensor places_N, before_N;  // a place that both change is listed twice, with the same number
};

// Replaces the logits of tokens that may not come next by the lowest finite number, which adds nothing to a row's sum.
// The bits are expanded to one byte per token, for some rows at a time.
void exclude(const at::Tensor& logits_RV, const std::vector<RowHistory>& histories) {
  constexpr std::int64_t kRows = 64;
  const std::int64_t R = logits_RV.size(0), V = logits_RV.size(1), words = (V + 63) / 64;
  at::Tensor bits_RW = at::empty({R, words}, at::kLong);
  for (std::int64_t r = 0; r < R; ++r) {
    const std::span<const std::uint64_t> allowed = histories[static_cast<std::size_t>(r)].allowed;
    MAGISTER_ASSERT(static_cast<std::int64_t>(allowed.size()) >= words);
    std::memcpy(bits_RW.data_ptr<std::int64_t>() + r * words, allowed.data(), static_cast<std::size_t>(words) * 8);
  }
  const at::Tensor bytes_RB = upload(bits_RW.view(at::kByte), logits_RV.device());  // bit i of byte b is token 8 b + i
  const at::Tensor places = upload(at::tensor({1, 2, 4, 8, 16, 32, 64, 128}, at::kByte), logits_RV.device());
  for (std::int64_t first = 0; first < R; first += kRows) {
    const std::int64_t count = std::min(kRows, R - first);
    const at::Tensor excluded_RV =
        bytes_RB.narrow(0, first, count).unsqueeze(2).bitwise_and(places).eq(0).view({count, 64 * words});
    logits_RV.narrow(0, first, count).masked_fill_(excluded_RV.narrow(1, 0, V), std::numeric_limits<float>::lowest());
  }
}

// The `kept` best tokens of each row: [R, kept] i64, {logit, id} as ReduceLogits writes them.
at::Tensor best_of(const at::Tensor& logits_RV, std::int64_t kept, const gpu::Queue& queue) {
  const std::int64_t R = logits_RV.size(0), W = gpu::ReduceLogits::kNumbers + kept;
  const at::Tensor no_targets = at::full({R}, -1, logits_RV.options().dtype(at::kInt));
  at::Tensor shares_RW = at::empty({R, W}, logits_RV.options().dtype(at::kLong));
  const gpu::ReduceLogits kernel{logits_RV.const_data_ptr<float>(),
                                 no_targets.const_data_ptr<std::int32_t>(),
                                 shares_RW.data_ptr<std::int64_t>(),
                                 logits_RV.size(1),
                                 0,
                                 W,
                                 static_cast<int>(kept)};
  gpu::launch(kernel, kernel.shape(R), queue);
  return shares_RW.narrow(1, gpu::ReduceLogits::kNumbers, kept);
}

// [R, 2 + C] f64: maximum and sum of each row, then the logits of these tokens.
at::Tensor look_at(const at::Tensor& logits_RV, const at::Tensor& ids_RC, const gpu::Queue& queue) {
  const std::int64_t R = ids_RC.size(0), C = ids_RC.size(1);
  const auto options = logits_RV.options();
  const at::Tensor first_R1 = at::arange(0, R + 1, options.dtype(at::kInt)) * C;
  at::Tensor sums_R2 = at::empty({R, 2}, options.dtype(at::kDouble)), found_RC = at::empty({R, C}, sums_R2.options());
  const gpu::WantedLogits kernel{logits_RV.const_data_ptr<float>(),
                                 first_R1.const_data_ptr<std::int32_t>(),
                                 ids_RC.const_data_ptr<std::int32_t>(),
                                 sums_R2.data_ptr<double>(),
                                 found_RC.data_ptr<double>(),
                                 logits_RV.size(1),
                                 0};
  gpu::launch(kernel, kernel.shape(R), queue);
  return at::cat({sums_R2, found_RC}, 1);
}

// [R, 2 + C] for the original rows. sums_R2: their sums from before the exclusion, if tokens were excluded.
at::Tensor look_at_model(const at::Tensor& logits_RV, const at::Tensor& ids_RC, const at::Tensor& sums_R2,
                         const gpu::Queue& queue) {
  const at::Tensor found = look_at(logits_RV, ids_RC, queue);
  return sums_R2.defined() ? at::cat({sums_R2, found.narrow(1, 2, ids_RC.size(1))}, 1) : found;
}

TokenId id_of(std::int64_t candidate) { return static_cast<TokenId>(candidate >> 32); }
float logit_of(std::int64_t candidate) { return std::bit_cast<float>(static_cast<std::uint32_t>(candidate)); }

}  // namespace

std::vector<CandidateRow> candidates_on_device(const at::Tensor& logits_RV, const std::vector<RowHistory>& histories,
                                               const SamplingParams& params, std::int64_t count, std::int64_t top,
                                               const gpu::Queue& queue) {
  MAGISTER_ASSERT(logits_RV.is_contiguous() && std::max(count, top) <= kMostGpuCandidates);
  const std::int64_t R = logits_RV.size(0);
  const bool excludes = !histories.front().allowed.empty();
  at::Tensor model_sums_R2, model_top_RK;
  if (excludes) {
    model_sums_R2 = look_at(logits_RV, at::empty({R, 0}, logits_RV.options().dtype(at::kInt)), queue);
    if (top > 0) model_top_RK = best_of(logits_RV, top, queue);
  }
  const ChangedRows changed(logits_RV, histories, params);
  if (excludes) exclude(logits_RV, histories);
  const bool differs = changed.any() || excludes;
  const at::Tensor best_RK = best_of(logits_RV, differs ? count : std::max(count, top), queue);
  const at::Tensor ids_RC = best_RK.narrow(1, 0, count).bitwise_right_shift(32).to(at::kInt).contiguous();
  const at::Tensor as_changed = look_at(logits_RV, ids_RC, queue);
  if (changed.any()) changed.undo();
  const at::Tensor as_model = differs ? look_at_model(logits_RV, ids_RC, model_sums_R2, queue) : as_changed;
  const at::Tensor top_RK = model_top_RK.defined()     ? model_top_RK
                            : changed.any() && top > 0 ? best_of(logits_RV, top, queue)
                                                       : best_RK.narrow(1, 0, top);
  // One copy of integers.
  const at::Tensor on_host =
      at::cat({best_RK.narrow(1, 0, count), top_RK, as_changed.view(at::kLong), as_model.view(at::kLong)}, 1).cpu();
  std::vector<CandidateRow> rows(static_cast<std::size_t>(R));
  const auto* next = on_host.const_data_ptr<std::int64_t>();
  for (std::size_t r = 0; r < rows.size(); ++r) {
    CandidateRow& row = rows[r];
    const std::span<const std::uint64_t> allowed = histories[r].allowed;
    const std::int64_t *const best = next, *const tops = best + count, *const there = tops + top,
                              *const own = there + 2 + count;
    const auto number = [](const std::int64_t* at) { return std::bit_cast<double>(*at); };
    row.logsumexp = number(there) + std::log(number(there + 1));
    row.model_logsumexp = number(own) + std::log(number(own + 1));
    for (std::int64_t i = 0; i < count; ++i) {
      if (id_of(best[i]) < 0) break;  // the row has fewer finite logits; NaN is never a candidate
      const auto id = static_cast<std::size_t>(id_of(best[i]));
      if (!allowed.empty() && (allowed[id / 64] >> (id % 64) & 1) == 0) break;
      row.ids.push_back(id_of(best[i]));
      row.logits.push_back(static_cast<float>(number(there + 2 + i)));
      row.model_logits.push_back(static_cast<float>(number(own + 2 + i)));
    }
    for (std::int64_t i = 0; i < top; ++i) {
      row.top_ids.push_back(id_of(tops[i]));
      row.top_logprobs.push_back(static_cast<float>(logit_of(tops[i]) - row.model_logsumexp));
    }
    next = own + 2 + count;
  }
  return rows;
}

}  // namespace magister
