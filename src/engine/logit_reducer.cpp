// Fused head: product, online log-sum-exp, entropy, target and exact top-k, slice by slice of the vocabulary. Source of
// the online softmax: arXiv 1805.02867. Exchanging candidates instead of logits is this project's own method.
#include "magister/engine/logit_reducer.h"

#include <ATen/ATen.h>
#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "magister/core/error.h"
#include "magister/model/cpu/cpu_kernels.h"

namespace magister {
namespace {

// 20 panels. 256 rows x 960 columns x 4 B = 1 MB fits the L2 cache of server cores (2 MB) and half of a desktop's L3
// slice.
constexpr std::int64_t kSliceColumns = 20 * Linear::kPanel;
constexpr std::int64_t kTileRows = 256;
// Two different logits can have equal f32 log-probabilities after the log-sum-exp is subtracted; then the lower id
// comes first. So a few candidates beyond top_k are kept until the log-probabilities are known.
constexpr std::int64_t kTieSlack = 16;
constexpr std::int64_t kMaxCandidateBytes = 64 << 20;

struct Candidate {
  float logit;
  std::int32_t id;
};
static_assert(sizeof(Candidate) == sizeof(std::int64_t));

bool better(const Candidate& a, const Candidate& b) { return a.logit > b.logit || (a.logit == b.logit && a.id < b.id); }

// The best `keep` candidates of a row; logits up to the threshold cannot enter any more.
struct RowCandidates {
  Candidate* entries = nullptr;
  std::int64_t count = 0;
  float threshold = -std::numeric_limits<float>::infinity();

  void select(std::int64_t keep) {
    if (count <= keep) return;
    std::nth_element(entries, entries + keep - 1, entries + count, better);
    count = keep;
    threshold = entries[keep - 1].logit;
  }
};

}  // namespace

LogitReducer::LogitReducer(const LmHead& head, ProcessGroup& group, ThreadPool& pool, std::int64_t top_k)
    : head_(head), group_(group), pool_(pool), top_k_(top_k) {
  MAGISTER_CHECK(top_k >= 1 && top_k <= head.vocab_size, ExitCode::kConfig,
                 "top_k is {}, but the vocabulary has {} entries (no more can be kept); choose 1 to {}", top_k,
                 head.vocab_size, head.vocab_size);
  const std::int64_t columns = head.projection.out_features();
  keep_ = std::min(columns, top_k + kTieSlack);
  capacity_ = keep_ + std::max<std::int64_t>(kSliceColumns, std::min<std::int64_t>(keep_, 4 * kSliceColumns));
  tile_rows_ = std::clamp<std::int64_t>(kMaxCandidateBytes / (capacity_ * 8), 16, kTileRows);
  for (std::int64_t begin = 0; !head.queue && begin < columns; begin += kSliceColumns) {
    slices_.push_back(head.projection.outputs(begin, std::min(begin + kSliceColumns, columns)));
  }
  common_width_ = -group.least_number(-row_width());
}

std::uint64_t LogitReducer::scratch_bytes() const {
  if (head_.queue) return static_cast<std::uint64_t>(kLogitRows * head_.projection.out_features()) * sizeof(float);
  return static_cast<std::uint64_t>(tile_rows_) * (kSliceColumns * 4 + capacity_ * 8) + kSliceColumns * 4;
}

// shares[r, 0..3] = maximum, sum, weighted sum, target logit of this shard; then keep_ packed candidates in any order.
void LogitReducer::reduce_tile(const float* hidden, std::int64_t rows, const TokenId* targets, float* scratch,
                               std::int64_t* shares) const {
  const CpuKernels& kernels = cpu_kernels();
  const std::int64_t D = head_.projection.in_features();
  float* logits = scratch;
  auto* positions = reinterpret_cast<std::int32_t*>(logits + tile_rows_ * kSliceColumns);
  auto* entries = reinterpret_cast<Candidate*>(positions + kSliceColumns);
  std::vector<SoftmaxState> states(static_cast<std::size_t>(rows));
  std::vector<RowCandidates> candidates(static_cast<std::size_t>(rows));
  std::vector<double> target_logits(static_cast<std::size_t>(rows), -std::numeric_limits<double>::infinity());
  for (std::int64_t r = 0; r < rows; ++r) candidates[r].entries = entries + r * capacity_;

  std::int64_t first_id = static_cast<std::int64_t>(head_.vocab.begin);
  for (const Linear& slice : slices_) {
    const std::int64_t columns = slice.out_features();
    linear_tile(hidden, D, rows, slice, logits, columns, false);
    head_.cap(logits, rows * columns);
    for (std::int64_t r = 0; r < rows; ++r) {
      const float* row = logits + r * columns;
      kernels.logsumexp_step(row, columns, &states[r]);
      RowCandidates& kept = candidates[r];
      if (kept.count + columns > capacity_) kept.select(keep_);
      const std::int64_t found = kernels.above(row, columns, kept.threshold, positions);
      for (std::int64_t i = 0; i < found; ++i) {
        kept.entries[kept.count++] = {row[positions[i]], static_cast<std::int32_t>(first_id + positions[i])};
      }
      const std::int64_t target = targets[r] - first_id;
      if (target >= 0 && target < columns) target_logits[r] = row[target];
    }
    first_id += columns;
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    std::int64_t* share = shares + r * row_width();
    candidates[r].select(keep_);
    share[0] = std::bit_cast<std::int64_t>(static_cast<double>(states[r].maximum));
    share[1] = std::bit_cast<std::int64_t>(states[r].sum);
    share[2] = std::bit_cast<std::int64_t>(states[r].weighted_sum);
    share[3] = std::bit_cast<std::int64_t>(target_logits[r]);
    for (std::int64_t i = 0; i < keep_; ++i) {
      // Only a row with logits that are not finite has holes (id -1).
      const Candidate hole{-std::numeric_limits<float>::infinity(), -1};
      share[kNumbers + i] = std::bit_cast<std::int64_t>(i < candidates[r].count ? candidates[r].entries[i] : hole);
    }
  }
}

namespace {

struct MergedRow {
  double logsumexp = 0, entropy = 0, target_logit = 0;
};

// Merges the shards' numbers of one row, in shard order.
MergedRow merge_numbers(const std::vector<const std::int64_t*>& shares) {
  const auto number = [](const std::int64_t* share, int i) { return std::bit_cast<double>(share[i]); };
  double maximum = -std::numeric_limits<double>::infinity();
  for (const std::int64_t* share : shares) maximum = std::max(maximum, number(share, 0));
  double sum = 0, weighted = 0, target = -std::numeric_limits<double>::infinity();
  for (const std::int64_t* share : shares) {
    const double shift = number(share, 0) - maximum, factor = std::exp(shift);
    if (number(share, 1) != 0) {  // also for NaN: a logit that is not finite on one shard makes the row NaN
      sum += factor * number(share, 1);
      weighted += factor * (number(share, 2) + shift * number(share, 1));
    }
    target = std::max(target, number(share, 3));
  }
  return {maximum + std::log(sum), std::log(sum) - weighted / sum, target};
}

struct Outputs {
  std::int32_t* id;
  float *logprob, *logsumexp, *target_logprob, *entropy, *tail_mass;
};

// Work memory of a thread.
struct Merged {
  std::vector<Candidate> best;
  std::vector<std::int64_t> keys, sorted;
};

// Up to this many candidates are sorted by counting. Comparison sort has unpredictable branches: for 80 candidates it
// takes 2.4 us, counting 0.5 us.
constexpr std::size_t kMostCounted = 256;

// Sorts distinct keys in ascending order: the place of a key is the number of smaller keys.
void sort_by_counting(std::vector<std::int64_t>& keys, std::vector<std::int64_t>& sorted) {
  const std::size_t count = keys.size(), filled = (count + 3) / 4 * 4;
  keys.resize(filled, std::numeric_limits<std::int64_t>::max());
  sorted.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    const __m256i key = _mm256_set1_epi64x(keys[i]);
    __m256i smaller = _mm256_setzero_si256();
    for (std::size_t j = 0; j < filled; j += 4) {
      const __m256i others = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(keys.data() + j));
      smaller = _mm256_sub_epi64(smaller, _mm256_cmpgt_epi64(key, others));
    }
    std::int64_t counts[4];
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(counts), smaller);
    sorted[static_cast<std::size_t>(counts[0] + counts[1] + counts[2] + counts[3])] = keys[i];
  }
}

// Sorts the first `found` in the order of better(). The bits of a negative float grow with its magnitude, so logit and
// id form one integer to sort by. If a logit is not negative (a token with probability 1, NaN), candidates are compared
// instead.
void sort_best(Merged& merged, std::int64_t found) {
  std::vector<Candidate>& best = merged.best;
  bool all_negative = best.size() <= kMostCounted;
  merged.keys.clear();
  for (std::size_t i = 0; all_negative && i < best.size(); ++i) {
    all_negative = best[i].logit < 0;
    const auto magnitude = static_cast<std::int64_t>(std::bit_cast<std::uint32_t>(best[i].logit) & 0x7fffffffu);
    merged.keys.push_back(magnitude << 32 | best[i].id);
  }
  if (!all_negative) {
    std::partial_sort(best.begin(), best.begin() + found, best.end(), better);
    return;
  }
  sort_by_counting(merged.keys, merged.sorted);
  for (std::size_t i = 0; i < static_cast<std::size_t>(found); ++i) {
    const auto key = static_cast<std::uint64_t>(merged.sorted[i]);
    best[i] = {std::bit_cast<float>(static_cast<std::uint32_t>(key >> 32) | 0x80000000u),
               static_cast<std::int32_t>(key & 0xffffffffu)};
  }
}

void finish_row(const std::vector<const std::int64_t*>& shares, std::int64_t numbers, std::int64_t keep, std::int64_t k,
                bool has_target, Merged& merged, const Outputs& out) {
  const MergedRow row = merge_numbers(shares);
  std::vector<Candidate>& best = merged.best;
  best.clear();
  for (const std::int64_t* share : shares) {
    for (std::int64_t i = 0; i < keep; ++i) {
      const auto candidate = std::bit_cast<Candidate>(share[numbers + i]);
      if (candidate.id >= 0) best.push_back(candidate);
    }
  }
  const std::int64_t found = std::min<std::int64_t>(k, static_cast<std::int64_t>(best.size()));
  // The log-probabilities of a row that is not finite are all NaN, so it keeps the order of its logits.
  const bool finite = !std::isnan(row.logsumexp);
  if (!finite) std::partial_sort(best.begin(), best.begin() + found, best.end(), better);
  for (Candidate& one : best) one.logit = static_cast<float>(one.logit - row.logsumexp);  // now the log-probability
  if (finite) sort_best(merged, found);
  double mass = 0;
  for (std::int64_t i = 0; i < k; ++i) {
    out.id[i] = i < found ? best[i].id : -1;
    out.logprob[i] = i < found ? best[i].logit : -std::numeric_limits<float>::infinity();
    if (i < found) mass += std::exp(static_cast<double>(best[i].logit));
  }
  *out.logsumexp = static_cast<float>(row.logsumexp);
  *out.entropy = static_cast<float>(std::max(row.entropy, 0.0));
  *out.tail_mass = static_cast<float>(std::clamp(1.0 - mass, 0.0, 1.0));
  *out.target_logprob =
      has_target ? static_cast<float>(row.target_logit - row.logsumexp) : std::numeric_limits<float>::quiet_NaN();
}

}  // namespace

at::Tensor LogitReducer::shares_on_cpu(const at::Tensor& hidden_TD, std::span<const TokenId> targets_T) const {
  const std::int64_t T = hidden_TD.size(0), D = hidden_TD.size(1), width = row_width();
  at::Tensor share_TW = at::empty({T, width}, at::TensorOptions().dtype(at::kLong));
  const std::int64_t scratch_floats = static_cast<std::int64_t>((scratch_bytes() + 3) / 4);
  at::Tensor scratch = at::empty({pool_.num_threads(), scratch_floats}, at::TensorOptions().dtype(at::kFloat));
  pool_.run((T + tile_rows_ - 1) / tile_rows_, [&](std::int64_t tile, int thread) {
    const std::int64_t begin = tile * tile_rows_, end = std::min(begin + tile_rows_, T);
    reduce_tile(hidden_TD.const_data_ptr<float>() + begin * D, end - begin, targets_T.data() + begin,
                scratch.data_ptr<float>() + thread * scratch_floats, share_TW.data_ptr<std::int64_t>() + begin * width);
  });
  return share_TW;
}

LogitReducer::Started LogitReducer::start(const at::Tensor& hidden_TD, std::span<const TokenId> targets_T) const {
  const std::int64_t T = hidden_TD.size(0), width = row_width();
  MAGISTER_ASSERT(static_cast<std::int64_t>(targets_T.size()) == T);
  at::Tensor share_TW = head_.queue ? shares_on_gpu(hidden_TD, targets_T) : shares_on_cpu(hidden_TD, targets_T);
  const int shards = group_.tp_size();
  // Shards may keep different numbers of candidates (uneven vocabularies smaller than top_k), so all are padded to one
  // width.
  if (shards > 1) {
    if (common_width_ > width) {
      const Candidate hole{-std::numeric_limits<float>::infinity(), -1};
      share_TW = at::cat({share_TW,
                          at::full({T, common_width_ - width}, std::bit_cast<std::int64_t>(hole), share_TW.options())},
                         1)
                     .contiguous();
    }
    share_TW = group_.all_gather(share_TW);
  }
  Started started{share_TW.view({shards, T, share_TW.size(1)}), {targets_T.begin(), targets_T.end()}, {}};
  if (share_TW.is_cuda()) {
    at::Tensor copy = at::empty(started.shares_STW.sizes(), at::TensorOptions().dtype(at::kLong).pinned_memory(true));
    started.shares_STW = copy.copy_(started.shares_STW, /*non_blocking=*/true);
    started.ready = GpuEvent::record();
  }
  return started;
}

ReducedLogits LogitReducer::finish(const Started& started) const {
  group_.wait_for(started.ready);
  const std::int64_t shards = started.shares_STW.size(0), T = started.shares_STW.size(1),
                     common = started.shares_STW.size(2);
  const std::vector<TokenId>& targets_T = started.targets_T;
  const auto f32 = at::TensorOptions().dtype(at::kFloat);
  ReducedLogits out;
  out.top_id_Tk = at::empty({T, top_k_}, at::TensorOptions().dtype(at::kInt));
  out.top_logprob_Tk = at::empty({T, top_k_}, f32);
  for (at::Tensor* column : {&out.logsumexp_T, &out.target_logprob_T, &out.entropy_T, &out.tail_mass_T}) {
    *column = at::empty({T}, f32);
  }
  const std::int64_t* all = started.shares_STW.const_data_ptr<std::int64_t>();
  pool_.run((T + kTileRows - 1) / kTileRows, [&](std::int64_t tile, int) {
    std::vector<const std::int64_t*> shares(static_cast<std::size_t>(shards));
    Merged merged;
    for (std::int64_t t = tile * kTileRows; t < std::min((tile + 1) * kTileRows, T); ++t) {
      for (std::int64_t s = 0; s < shards; ++s) shares[s] = all + (s * T + t) * common;
      finish_row(
          shares, kNumbers, common - kNumbers, top_k_, targets_T[static_cast<std::size_t>(t)] >= 0, merged,
          {out.top_id_Tk.data_ptr<std::int32_t>() + t * top_k_, out.top_logprob_Tk.data_ptr<float>() + t * top_k_,
           out.logsumexp_T.data_ptr<float>() + t, out.target_logprob_T.data_ptr<float>() + t,
           out.entropy_T.data_ptr<float>() + t, out.tail_mass_T.data_ptr<float>() + t});
    }
  });
  return out;
}

ReducedLogits LogitReducer::reduce_reference(const LmHead& head, const at::Tensor& hidden_TD,
                                             std::span<const TokenId> targets_T, std::int64_t top_k) {
  MAGISTER_CHECK(static_cast<std::int64_t>(head.vocab.size()) == head.vocab_size, ExitCode::kInternal,
                 "the plain head needs the whole vocabulary (this shard holds a part); use one shard");
  const at::Tensor weight_VD = head.projection.plain_weight();
  at::Tensor logits_TV = at::mm(hidden_TD.to(weight_VD.scalar_type()), weight_VD.t()).to(at::kFloat).to(at::kDouble);
  if (head.projection.bias_N.defined()) logits_TV = logits_TV + head.projection.bias_N;
  if (head.softcap > 0) logits_TV = at::tanh(logits_TV / head.softcap) * head.softcap;
  const at::Tensor logprob_TV = at::log_softmax(logits_TV, -1);
  const at::Tensor rounded_TV = logprob_TV.to(at::kFloat);
  // A stable descending sort puts lower ids first among equal log-probabilities.
  const auto [values, ids] = at::sort(rounded_TV, /*stable=*/true, /*dim=*/-1, /*descending=*/true);
  ReducedLogits out;
  out.top_id_Tk = ids.narrow(1, 0, top_k).to(at::kInt).contiguous();
  out.top_logprob_Tk = values.narrow(1, 0, top_k).contiguous();
  out.logsumexp_T = at::logsumexp(logits_TV, {-1}).to(at::kFloat);
  const at::Tensor probability_TV = logprob_TV.exp();
  out.entropy_T = -(probability_TV * logprob_TV).sum(-1).to(at::kFloat);
  out.tail_mass_T = (1.0 - out.top_logprob_Tk.to(at::kDouble).exp().sum(-1)).clamp(0.0, 1.0).to(at::kFloat);
  out.target_logprob_T = at::full({hidden_TD.size(0)}, std::numeric_limits<float>::quiet_NaN());
  for (std::size_t t = 0; t < targets_T.size(); ++t) {
    if (targets_T[t] >= 0) {
      const auto row = static_cast<std::int64_t>(t);
      out.target_logprob_T[row] = rounded_TV[row][targets_T[t]];
    }
  }
  return out;
}

}  // namespace magister
