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
  std::int64_t end = 0;               // draws [drawn, end) are this shard's
  std::int32_t* draws = nullptr;      // null: only the mass is computed
  // Draw n of d is the first token up to which the tail has more mass than this.
  double target(std::int64_t n, std::int64_t d) const {
    return rest * (static_cast<double>(n) + uniform) / static_cast<double>(d);
  }
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
  const auto probability = [&](std::int64_t i) { return std::exp(static_cast<double>(logits[i]) - row.logsumexp); };
  for (std::int64_t begin = 0; begin < columns; begin += kBlock) {
    const std::int64_t n = std::min(kBlock, columns - begin), id = first_id + begin;
    const auto kept = std::lower_bound(row.kept.begin(), row.kept.end(), id);
    const bool has_kept = kept != row.kept.end() && *kept < id + n;
    double sum = 0;
    if (!has_kept) {
      SoftmaxState state;
      cpu_kernels().logsumexp_step(logits + begin, n, &state);
      sum = state.sum * std::exp(static_cast<double>(state.maximum) - row.logsumexp);
      const bool draws = row.draws != nullptr && row.drawn < row.end && row.mass + sum > row.target(row.drawn, draws_);
      if (!draws) {
        row.mass += sum;
        for (std::int64_t i = n - 1; sum > 0; --i) {
          row.last = id + i;
          if (i == 0 || probability(begin + i) > 0) break;
        }
        continue;
      }
    }
    // The mass after the block is the same sum as above, however the tokens were processed.
    double mass = row.mass;
    for (std::int64_t i = 0; i < n; ++i) {
      if (has_kept && std::binary_search(kept, row.kept.end(), static_cast<std::int32_t>(id + i))) continue;
      const double p = probability(begin + i);
      mass += p;
      if (p > 0) row.last = id + i;
      while (row.draws != nullptr && p > 0 && row.drawn < row.end && mass > row.target(row.drawn, draws_))
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

// Each draw belongs to one shard: the one in whose part of the line its target lies, and those beyond the line's end to
// the last shard that has mass. All shards decide with the same numbers, so no draw is made twice or left out.
void TailSampler::divide_draws(const at::Device& device, std::vector<Row>& rows) const {
  const auto T = static_cast<std::int64_t>(rows.size());
  const int shards = group_.tp_size(), own = group_.tp_rank();
  at::Tensor mass_T = at::empty({T}, at::TensorOptions().dtype(at::kDouble));
  for (std::int64_t t = 0; t < T; ++t) mass_T.data_ptr<double>()[t] = rows[t].mass;
  const at::Tensor gathered =
      group_.all_gather(mass_T.view(at::kLong).to(device)).cpu().view({shards, T}).view(at::kDouble);
  for (std::int64_t t = 0; t < T; ++t) {
    Row& row = rows[t];
    const auto mass_of = [&](int s) { return gathered.const_data_ptr<double>()[s * T + t]; };
    const auto draws_below = [&](double mass) {
      std::int64_t n = 0;
      while (n < draws_ && row.target(n, draws_) < mass) ++n;
      return n;
    };
    int last = shards - 1;
    while (last > 0 && mass_of(last) == 0) --last;
    row.mass = 0;
    for (int s = 0; s < own; ++s) row.mass += mass_of(s);
    row.drawn = own <= last ? draws_below(row.mass) : draws_;
    row.end = own < last ? draws_below(row.mass + mass_of(own)) : draws_;
    row.last = -1;
  }
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
  for (Row& row : rows) row.end = draws_;
  if (shards > 1) {
    walk(hidden_TD, rows);
    divide_draws(hidden_TD.device(), rows);
  }
  for (std::int64_t t = 0; t < T; ++t) rows[t].draws = draws_Td.data_ptr<std::int32_t>() + t * draws_;
  walk(hidden_TD, rows);
  for (Row& row : rows) {
    // The sum may end before this shard's last draws: the tail's mass is known to 1e-7, and a block's mass is rounded
    // in another way than its tokens'. These draws are the last token that has mass.
    for (; row.last >= 0 && row.drawn < row.end; ++row.drawn)
      row.draws[row.drawn] = static_cast<std::int32_t>(row.last);
  }
  // Without mass (NaN included) nothing is drawn, and the ids have no meaning.
  if (shards == 1) return draws_Td.clamp_min_(0);
  const at::Tensor all =
      group_.all_gather(draws_Td.to(at::kLong).to(hidden_TD.device())).cpu().view({shards, T, draws_});
  return std::get<0>(all.max(0)).clamp_min(0).to(at::kInt);
}

}  // namespace magister
