// The log-sum-exp kernel sums blocks of the vocabulary; only blocks with a kept entry or a draw are processed token by
// token. The head's product is computed twice, because the draws need its log-sum-exp.
#include "magister/engine/tail_sampler.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "magister/core/error.h"
#include "magister/engine/logit_reducer.h"
#include "magister/model/cpu/cpu_kernels.h"
#include "magister/parallel/process_group.h"
#include "magister/parallel/thread_pool.h"

namespace magister {
namespace {

constexpr std::int64_t kTailColumns = 20 * Linear::kPanel, kBlock = 96;
constexpr std::int64_t kTailRows = 256;

}  // namespace

struct TailSampler::Row {
  double logsumexp = 0, rest = 0, uniform = 0;
  std::vector<std::int32_t> kept;     // ascending
  double mass = 0;                    // of the tail, before the next token
  std::int64_t drawn = 0, last = -1;  // draws made so far; the last token that has mass
  std::int32_t* draws = nullptr;      // null: only the mass is computed
};

TailSampler::TailSampler(const LmHead& head, ProcessGroup& group, ThreadPool& pool, std::int64_t draws)
    : head_(head), group_(group), pool_(pool), draws_(draws) {
  MAGISTER_CHECK(draws >= 1, ExitCode::kConfig, "{} draws of the rest (it would be lost); choose at least 1", draws);
  const std::int64_t columns = head.projection.out_features();
  for (std::int64_t begin = 0; !head.queue && begin < columns; begin += kTailColumns) {
    slices_.push_back(head.projection.outputs(begin, std::min(begin + kTailColumns, columns)));
  }
}

void TailSampler::add_slice(const float* logits, std::int64_t columns, std::int64_t first_id, Row& row) const {
  const auto target = [&] {
    return row.rest * (static_cast<double>(row.drawn) + row.uniform) / static_cast<double>(draws_);
  };
  for (std::int64_t begin = 0; begin < columns; begin += kBlock) {
    const std::int64_t n = std::min(kBlock, columns - begin), id = first_id + begin;
    const auto kept = std::lower_bound(row.kept.begin(), row.kept.end(), id);
    const bool has_kept = kept != row.kept.end() && *kept < id + n;
    double sum = 0;
    if (!has_kept) {
      SoftmaxState state;
      cpu_kernels().logsumexp_step(logits + begin, n, &state);
      sum = state.sum * std::exp(static_cast<double>(state.maximum) - row.logsumexp);
      const bool draws = row.draws != nullptr && row.drawn < draws_ && row.mass + sum > target();
      if (!draws) {
        row.mass += sum;
        if (sum > 0) row.last = id + n - 1;
        continue;
      }
    }
    // The mass after the block is the same sum as above, however the tokens were processed.
    double mass = row.mass;
    for (std::int64_t i = 0; i < n; ++i) {
      if (has_kept && std::binary_search(kept, row.kept.end(), static_cast<std::int32_t>(id + i))) continue;
      const double p = std::exp(static_cast<double>(logits[begin + i]) - row.logsumexp);
      mass += p;
      if (p > 0) row.last = id + i;
      while (row.draws != nullptr && p > 0 && row.drawn < draws_ && mass > target())
        row.draws[row.drawn++] = static_cast<std::int32_t>(id + i);
    }
    row.mass = has_kept ? mass : row.mass + sum;
  }
}

void TailSampler::walk_tile(const float* hidden, std::span<Row> rows, float* scratch) const {
  const std::int64_t D = head_.projection.in_features(), n = static_cast<std::int64_t>(rows.size());
  auto first_id = static_cast<std::int64_t>(head_.vocab.begin);
  for (const Linear& slice : slices_) {
    const std::int64_t columns = slice.out_features();
    linear_tile(hidden, D, n, slice, scratch, columns, false);
    head_.cap(scratch, n * columns);
    for (std::int64_t r = 0; r < n; ++r) {
      add_slice(scratch + r * columns, columns, first_id, rows[static_cast<std::size_t>(r)]);
    }
    first_id += columns;
  }
}

void TailSampler::walk(const at::Tensor& hidden_TD, std::vector<Row>& rows) const {
  const std::int64_t T = hidden_TD.size(0), D = hidden_TD.size(1);
  if (head_.queue) {
    for (std::int64_t begin = 0; begin < T; begin += kLogitRows) {
      const std::int64_t n = std::min(kLogitRows, T - begin);
      at::Tensor hidden_RD = hidden_TD.narrow(0, begin, n);
      // The number of rows is always the same, as in LogitReducer, because the product chooses its order of sums by it.
      if (n < kLogitRows) hidden_RD = at::constant_pad_nd(hidden_RD, {0, 0, 0, kLogitRows - n});
      const at::Tensor logits_Rv = logits_of(head_, hidden_RD, pool_).narrow(0, 0, n).cpu().contiguous();
      const std::int64_t v = logits_Rv.size(1);
      pool_.run(n, [&](std::int64_t r, int) {
        add_slice(logits_Rv.const_data_ptr<float>() + r * v, v, static_cast<std::int64_t>(head_.vocab.begin),
                  rows[static_cast<std::size_t>(begin + r)]);
      });
    }
    return;
  }
  at::Tensor scratch =
      at::empty({pool_.num_threads(), kTailRows * kTailColumns}, at::TensorOptions().dtype(at::kFloat));
  pool_.run((T + kTailRows - 1) / kTailRows, [&](std::int64_t tile, int thread) {
    const std::int64_t begin = tile * kTailRows, n = std::min(kTailRows, T - begin);
    walk_tile(hidden_TD.const_data_ptr<float>() + begin * D,
              std::span(rows).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(n)),
              scratch.data_ptr<float>() + thread * kTailRows * kTailColumns);
  });
}

at::Tensor TailSampler::sample(const at::Tensor& hidden_TD, const ReducedLogits& logits,
                               std::span<const double> uniforms_T) const {
  const std::int64_t T = hidden_TD.size(0), k = logits.top_id_Tk.size(1);
  MAGISTER_ASSERT(static_cast<std::int64_t>(uniforms_T.size()) == T);
  const int shards = group_.tp_size();
  const auto options = at::TensorOptions().dtype(at::kInt);
  at::Tensor draws_Td = at::full({T, draws_}, -1, options);
  std::vector<Row> rows(static_cast<std::size_t>(T));
  for (std::int64_t t = 0; t < T; ++t) {
    const auto* ids = logits.top_id_Tk.const_data_ptr<std::int32_t>() + t * k;
    rows[t].logsumexp = logits.logsumexp_T.const_data_ptr<float>()[t];
    rows[t].rest = logits.tail_mass_T.const_data_ptr<float>()[t];
    rows[t].uniform = uniforms_T[static_cast<std::size_t>(t)];
    rows[t].kept.assign(ids, ids + k);
    std::sort(rows[t].kept.begin(), rows[t].kept.end());
  }
  if (shards > 1) {
    walk(hidden_TD, rows);
    at::Tensor mass_T = at::empty({T}, at::TensorOptions().dtype(at::kDouble));
    for (std::int64_t t = 0; t < T; ++t) mass_T.data_ptr<double>()[t] = rows[t].mass;
    const at::Tensor gathered =
        group_.all_gather(mass_T.view(at::kLong).to(hidden_TD.device())).cpu().view({shards, T}).view(at::kDouble);
    // The draws of a shard begin after the mass of the shards before it.
    for (std::int64_t t = 0; t < T; ++t) {
      double before = 0;
      for (int s = 0; s < group_.tp_rank(); ++s) before += gathered.const_data_ptr<double>()[s * T + t];
      rows[t].mass = before;
      while (rows[t].drawn < draws_ &&
             rows[t].rest * (static_cast<double>(rows[t].drawn) + rows[t].uniform) / static_cast<double>(draws_) <
                 before)
        ++rows[t].drawn;
      rows[t].last = -1;
    }
  }
  for (std::int64_t t = 0; t < T; ++t) rows[t].draws = draws_Td.data_ptr<std::int32_t>() + t * draws_;
  walk(hidden_TD, rows);
  const bool is_last = group_.tp_rank() == shards - 1;
  for (std::int64_t t = 0; t < T; ++t) {
    // The tail's mass is known to 1e-7. If the sum ends before the last draw, that draw is the last token with mass.
    for (; is_last && rows[t].drawn < draws_; ++rows[t].drawn) {
      rows[t].draws[rows[t].drawn] = static_cast<std::int32_t>(std::max<std::int64_t>(rows[t].last, 0));
    }
  }
  if (shards == 1) return draws_Td;
  const at::Tensor all =
      group_.all_gather(draws_Td.to(at::kLong).to(hidden_TD.device())).cpu().view({shards, T, draws_});
  return std::get<0>(all.max(0)).clamp_min(0).to(at::kInt);
}

}  // namespace magister
