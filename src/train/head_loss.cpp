// A tile of rows: logits by slices of the vocabulary, the log-sum-exp of each row, the losses of its few special tokens
// in f64. Then gradients replace the logits in place, and two products take them to the head and back to the rows.
#include "magister/train/head_loss.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "magister/core/error.h"
#include "magister/parallel/thread_pool.h"
#include "train/gpu_head_loss.h"
#include "train/head_tile.h"
#include "train/row_loss.h"

namespace magister {
namespace {

constexpr std::int64_t kTileRows = 48, kManyRows = 4096;

// With few rows a tile of 48 would be more than an eighth of T x V; the products are made for at least 16.
std::int64_t tile_rows(std::int64_t rows) {
  return rows >= kManyRows ? 2 * kTileRows : rows >= 10 * kTileRows ? kTileRows : 16;
}

// One softmax of a tile: the log-sum-exp of each row at one temperature.
struct Softmax {
  float factor = 1;
  std::vector<float> slice_maxima, maxima, scales;  // [slices][R], [R], [R]
  std::vector<double> slice_sums, sums;

  void resize(std::int64_t slices, std::int64_t R) {
    slice_maxima.resize(static_cast<std::size_t>(slices * R));
    slice_sums.resize(static_cast<std::size_t>(slices * R));
    // Columns without a row have logits of 0; with these numbers their gradients are 0.
    maxima.assign(static_cast<std::size_t>(R), 0.0f);
    scales.assign(static_cast<std::size_t>(R), 0.0f);
    sums.resize(static_cast<std::size_t>(R));
  }
  // Merges the slices' parts of row r, in their order.
  void merge(std::int64_t slices, std::int64_t R, std::int64_t r) {
    float top = -std::numeric_limits<float>::infinity();
    for (std::int64_t s = 0; s < slices; ++s) top = std::max(top, slice_maxima[s * R + r]);
    double sum = 0;
    for (std::int64_t s = 0; s < slices; ++s) {
      sum += slice_sums[s * R + r] * std::exp(static_cast<double>(slice_maxima[s * R + r]) - top);
    }
    maxima[r] = top;
    sums[r] = sum;
  }
  RowSoftmax of_row(std::int64_t r) const { return {factor, maxima[r], sums[r]}; }
  // Every token's gradient is coefficient * its probability.
  void finish(std::int64_t r, double coefficient) { scales[r] = static_cast<float>(coefficient / sums[r]); }
};

class HeadLoss {
 public:
  HeadLoss(const at::Tensor& hidden_TD, const at::Tensor& head_VD, const HeadRows& rows, const HeadLossOptions& options,
           bool sampled, double scale, float* head_gradient, ThreadPool* pool)
      : hidden_(hidden_TD.const_data_ptr<float>()),
        D_(hidden_TD.size(1)),
        V_(head_VD.size(0)),
        rows_(rows),
        options_(options),
        loss_(rows, options, V_, sampled, scale),
        two_(loss_.two()),
        head_gradient_(head_gradient),
        pool_(pool),
        tile_(head_VD.const_data_ptr<float>(), V_, D_, tile_rows(hidden_TD.size(0))) {
    second_.factor = loss_.tempered_factor();
  }

  void run(HeadLossResult& result) {
    const std::int64_t step = tile_rows(static_cast<std::int64_t>(result.label_logprob_T.size(0)));
    const auto count = static_cast<std::int64_t>(rows_.index.size());
    for (std::int64_t begin = 0; begin < count; begin += step) {
      run_tile(std::span(rows_.index)
                   .subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(std::min(step, count - begin))),
               result);
    }
  }

 private:
  void run_tile(std::span<const std::int64_t> index, HeadLossResult& result) {
    const auto n = static_cast<std::int64_t>(index.size());
    tile_.load(hidden_, index, static_cast<float>(options_.scaling.multiplier));
    plain_.resize(tile_.num_slices(), tile_.columns());
    if (two_) second_.resize(tile_.num_slices(), tile_.columns());
    on_threads(pool_, tile_.num_slices(), [&](std::int64_t slice) { forward(slice); });
    specials_.assign(static_cast<std::size_t>(n), {});
    std::vector<RowSums> sums(static_cast<std::size_t>(n));
    float* logprobs = result.label_logprob_T.data_ptr<float>();
    on_threads(pool_, n, [&](std::int64_t r) { sums[r] = row(r, index[r]); });
    for (std::int64_t r = 0; r < n; ++r) {
      const RowSums& row = sums[r];
      logprobs[index[r]] = row.label_logprob;
      result.loss += row.loss;
      result.lm += row.lm;
      result.distill += row.distill;
      result.num_teacher_rows += row.teacher;
    }
    if (!options_.gradient) return;
    sort_specials();
    on_threads(pool_, tile_.num_groups(), [&](std::int64_t group) { backward(group); });
    float* out = result.hidden_gradient_TD.data_ptr<float>();
    on_threads(pool_, n, [&](std::int64_t r) {
      float* to = out + index[r] * D_;
      tile_.hidden_gradient(r, to);
      if (options_.scaling.multiplier != 1)
        cpu_kernels().scale(to, static_cast<float>(options_.scaling.multiplier), D_);
    });
  }

  void forward(std::int64_t slice) {
    tile_.multiply(slice);
    const IndexRange entries = tile_.slice(slice);
    const std::int64_t R = tile_.columns(), n = static_cast<std::int64_t>(entries.size());
    float* logits = tile_.logits(entries.begin);
    const auto cap = static_cast<float>(options_.scaling.softcap);
    if (cap > 0) cpu_kernels().softcap(logits, n * R, 1.0f, cap);
    for (Softmax* softmax : {&plain_, two_ ? &second_ : nullptr}) {
      if (softmax == nullptr) continue;
      cpu_kernels().logsumexp_columns(logits, n, R, softmax->factor, softmax->slice_maxima.data() + slice * R,
                                      softmax->slice_sums.data() + slice * R);
    }
  }

  RowSums row(std::int64_t r, std::int64_t t) {
    const std::int64_t slices = tile_.num_slices(), R = tile_.columns();
    plain_.merge(slices, R, r);
    if (two_) second_.merge(slices, R, r);
    const RowSoftmax plain = plain_.of_row(r);
    const RowSums sums = loss_.row(
        t, plain, two_ ? second_.of_row(r) : plain,
        [&](std::int32_t id) { return tile_.logits(static_cast<std::uint64_t>(id))[r]; }, static_cast<std::int32_t>(r),
        specials_[static_cast<std::size_t>(r)]);
    plain_.finish(r, sums.plain);
    if (two_) second_.finish(r, sums.tempered);
    return sums;
  }

  void sort_specials() {
    sorted_.clear();
    for (const auto& row : specials_) sorted_.insert(sorted_.end(), row.begin(), row.end());
    std::sort(sorted_.begin(), sorted_.end(),
              [](const Special& a, const Special& b) { return a.id < b.id || (a.id == b.id && a.column < b.column); });
  }

  void backward(std::int64_t group) {
    const IndexRange slices = tile_.slices_of(group);
    const ColumnSoftmax first{plain_.factor, plain_.maxima.data(), plain_.scales.data()};
    const ColumnSoftmax second =
        two_ ? ColumnSoftmax{second_.factor, second_.maxima.data(), second_.scales.data()} : ColumnSoftmax{};
    for (auto slice = static_cast<std::int64_t>(slices.begin); slice < static_cast<std::int64_t>(slices.end); ++slice) {
      const IndexRange entries = tile_.slice(slice);
      cpu_kernels().softmax_columns(tile_.logits(entries.begin), static_cast<std::int64_t>(entries.size()),
                                    tile_.columns(), first, second, static_cast<float>(options_.scaling.softcap));
      const auto begin =
          std::lower_bound(sorted_.begin(), sorted_.end(), entries.begin,
                           [](const Special& a, std::uint64_t id) { return static_cast<std::uint64_t>(a.id) < id; });
      for (auto at = begin; at != sorted_.end() && static_cast<std::uint64_t>(at->id) < entries.end; ++at) {
        float& place = tile_.logits(static_cast<std::uint64_t>(at->id))[at->column];
        place = at->add ? place + at->value : at->value;
      }
      tile_.multiply_back(group, slice, head_gradient_);
    }
  }

  const float* hidden_;
  std::int64_t D_, V_;
  const HeadRows& rows_;
  const HeadLossOptions& options_;
  RowLoss loss_;
  bool two_;
  float* head_gradient_;
  ThreadPool* pool_;
  HeadTile tile_;
  Softmax plain_, second_;  // at temperature 1, and at the loss's if that is another
  std::vector<std::vector<Special>> specials_;
  std::vector<Special> sorted_;
};

}  // namespace

HeadLossResult head_loss(const at::Tensor& hidden_TD, const at::Tensor& head_VD, const HeadLossTargets& targets,
                         const HeadLossOptions& options, double scale, at::Tensor& head_gradient_VD, ThreadPool* pool) {
  const auto plain = [&](const at::Tensor& tensor) {
    return tensor.dim() == 2 && tensor.scalar_type() == at::kFloat && tensor.is_contiguous() &&
           (options.gpu_code ? tensor.device() == hidden_TD.device() : tensor.is_cpu());
  };
  MAGISTER_CHECK(plain(hidden_TD) && plain(head_VD) && hidden_TD.size(1) == head_VD.size(1), ExitCode::kInternal,
                 "hidden states and head are not contiguous f32 of one width (the products read them so); report this");
  const bool frozen = !head_gradient_VD.defined() || !options.gradient;
  MAGISTER_CHECK(frozen || (plain(head_gradient_VD) && head_gradient_VD.sizes() == head_VD.sizes()),
                 ExitCode::kInternal,
                 "the head's gradient does not have the head's shape (it is added to it); report this");
  const std::int64_t T = hidden_TD.size(0);
  const HeadRows rows(targets, T, head_VD.size(0));
  // Checked here, because a batch without a teacher's row would not notice.
  [[maybe_unused]] const DistillRow checked(options.distill, head_VD.size(0), targets.sampled && rows.K > 0);
  HeadLossResult result;
  const auto f32 = at::TensorOptions().dtype(at::kFloat);
  result.label_logprob_T = at::full({T}, std::numeric_limits<float>::quiet_NaN(), f32);
  result.num_rows = static_cast<std::int64_t>(rows.index.size());
  // A GPU's code makes the gradient of rows with a label itself.
  if (options.gradient && (!options.gpu_code || result.num_rows == 0))
    result.hidden_gradient_TD = at::zeros(hidden_TD.sizes(), f32.device(hidden_TD.device()));
  if (result.num_rows == 0) return result;
  if (options.gpu_code) {
    at::Tensor none;
    gpu_head_loss(hidden_TD, head_VD, rows, options, targets.sampled, scale, frozen ? none : head_gradient_VD, result,
                  pool);
    return result;
  }
  HeadLoss(hidden_TD, head_VD, rows, options, targets.sampled, scale,
           frozen ? nullptr : head_gradient_VD.data_ptr<float>(), pool)
      .run(result);
  return result;
}

std::uint64_t head_loss_bytes(std::int64_t rows, std::int64_t hidden_size, std::int64_t vocab_size, int num_threads) {
  return HeadTile::bytes(vocab_size, hidden_size, tile_rows(rows), num_threads);
}

}  // namespace magister
