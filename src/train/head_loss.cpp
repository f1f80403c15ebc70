// A tile of rows: logits by slices of the vocabulary, the log-sum-exp of each row, the losses of its few special tokens in f64, then the
// logits become gradients where they stand, and two products take them to the head and back to the rows.
#include "magister/train/head_loss.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "magister/core/error.h"
#include "magister/parallel/thread_pool.h"
#include "train/head_tile.h"

namespace magister {
namespace {

constexpr std::int64_t kNoLabel = -100;
constexpr std::int64_t kTileRows = 48, kManyRows = 4096;

// At few rows a tile of 48 would be more than an eighth of T x V; 16 is the least that the products are made for.
std::int64_t tile_rows(std::int64_t rows) {
  return rows >= kManyRows ? 2 * kTileRows : rows >= 10 * kTileRows ? kTileRows : 16;
}

// A gradient that stands at one token of one row, in place of the softmax's.
struct Special {
  std::int32_t id;
  std::int32_t column;
  float value;
  bool add;  // to the softmax's, not in its place
};

// One softmax of a tile: log-sum-exp by row at one temperature.
struct Softmax {
  float factor = 1;
  std::vector<float> slice_maxima, maxima, scales;  // [slices][R], [R], [R]
  std::vector<double> slice_sums, sums, coefficients;

  void resize(std::int64_t slices, std::int64_t R) {
    slice_maxima.resize(static_cast<std::size_t>(slices * R));
    slice_sums.resize(static_cast<std::size_t>(slices * R));
    // Columns without a row have logits of 0: with these numbers their gradients are 0.
    maxima.assign(static_cast<std::size_t>(R), 0.0f);
    scales.assign(static_cast<std::size_t>(R), 0.0f);
    sums.resize(static_cast<std::size_t>(R));
    coefficients.assign(static_cast<std::size_t>(R), 0.0);
  }
  // The slices' parts of row r, in their order.
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
  double log_probability(std::int64_t r, float logit) const {
    return static_cast<double>(logit) * factor - maxima[r] - std::log(sums[r]);
  }
  // Every token's gradient is coefficients[r] * its probability.
  void finish(std::int64_t r) { scales[r] = static_cast<float>(coefficients[r] / sums[r]); }
};

struct RowSums {
  double loss = 0, lm = 0, distill = 0;
  bool teacher = false;
};

// The targets as plain arrays, checked.
struct Rows {
  std::vector<std::int64_t> index;  // rows that have a label
  const std::int64_t* labels;
  at::Tensor ids_TK, logprobs_TK, valid_T, entropy_T, tail_T, weight_T;
  std::int64_t K = 0;

  Rows(const HeadLossTargets& targets, std::int64_t T, std::int64_t V);
  bool has_teacher(std::int64_t t) const {
    return K > 0 && (!valid_T.defined() || valid_T.const_data_ptr<std::uint8_t>()[t] != 0);
  }
  double weight(std::int64_t t) const { return weight_T.defined() ? weight_T.const_data_ptr<float>()[t] : 1.0; }
  double entropy(std::int64_t t) const { return value_or_nan(entropy_T, t); }
  double tail(std::int64_t t) const { return value_or_nan(tail_T, t); }
  static double value_or_nan(const at::Tensor& column, std::int64_t t) {
    return column.defined() ? column.const_data_ptr<float>()[t] : std::numeric_limits<double>::quiet_NaN();
  }
};

at::Tensor column_of(const at::Tensor& tensor, at::ScalarType type, at::IntArrayRef shape, const char* name) {
  if (!tensor.defined()) return tensor;
  MAGISTER_CHECK(tensor.sizes() == shape && tensor.is_cpu(), ExitCode::kInternal,
                 "{} does not fit the rows of the batch (every row has one entry); report this", name);
  return tensor.to(type).contiguous();
}

Rows::Rows(const HeadLossTargets& targets, std::int64_t T, std::int64_t V) {
  MAGISTER_CHECK(targets.labels_T.defined() && targets.labels_T.scalar_type() == at::kLong &&
                     targets.labels_T.sizes() == at::IntArrayRef({T}) && targets.labels_T.is_contiguous(),
                 ExitCode::kInternal, "labels are not {} numbers of 64 bits (one for each row); report this", T);
  labels = targets.labels_T.const_data_ptr<std::int64_t>();
  if (targets.teacher_ids_TK.defined()) {
    MAGISTER_CHECK(targets.teacher_ids_TK.dim() == 2 && targets.teacher_logprobs_TK.defined(), ExitCode::kInternal,
                   "the teacher's ids are not rows of entries with log-probabilities (both are needed); report this");
    K = targets.teacher_ids_TK.size(1);
    ids_TK = column_of(targets.teacher_ids_TK, at::kInt, {T, K}, "teacher_ids");
    logprobs_TK = column_of(targets.teacher_logprobs_TK, at::kFloat, {T, K}, "teacher_logprobs");
    valid_T = column_of(targets.teacher_valid_T, at::kByte, {T}, "teacher_valid");
    tail_T = column_of(targets.teacher_tail_T, at::kFloat, {T}, "teacher_tail");
    entropy_T = column_of(targets.teacher_entropy_T, at::kFloat, {T}, "teacher_entropy");
  }
  weight_T = column_of(targets.row_weight_T, at::kFloat, {T}, "row_weight");
  for (std::int64_t t = 0; t < T; ++t) {
    if (labels[t] == kNoLabel) continue;
    MAGISTER_CHECK(
        labels[t] >= 0 && labels[t] < V, ExitCode::kData,
        "row {} has the label {}, the vocabulary {} entries (the text is not of the model's tokenizer); check "
        "model and data set",
        t, labels[t], V);
    index.push_back(t);
  }
}

class HeadLoss {
 public:
  HeadLoss(const at::Tensor& hidden_TD, const at::Tensor& head_VD, const Rows& rows, const HeadLossOptions& options,
           bool sampled, double scale, float* head_gradient, ThreadPool* pool)
      : hidden_(hidden_TD.const_data_ptr<float>()),
        D_(hidden_TD.size(1)),
        V_(head_VD.size(0)),
        rows_(rows),
        options_(options),
        sampled_(sampled),
        scale_(scale),
        head_gradient_(head_gradient),
        pool_(pool),
        tile_(head_VD.const_data_ptr<float>(), V_, D_, tile_rows(hidden_TD.size(0))) {
    // A row without a teacher has the cross entropy alone; one softmax serves both at temperature 1.
    distills_ = rows.K > 0 && options.distill.weight != 0;
    two_ = distills_ && options.distill.temperature != 1;
    tempered().factor = two_ ? static_cast<float>(1 / options.distill.temperature) : 1.0f;
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
  Softmax& tempered() { return two_ ? second_ : plain_; }

  void run_tile(std::span<const std::int64_t> index, HeadLossResult& result) {
    const auto n = static_cast<std::int64_t>(index.size());
    tile_.load(hidden_, index, static_cast<float>(options_.scaling.multiplier));
    plain_.resize(tile_.num_slices(), tile_.columns());
    if (two_) second_.resize(tile_.num_slices(), tile_.columns());
    on_threads(pool_, tile_.num_slices(), [&](std::int64_t slice) { forward(slice); });
    specials_.assign(static_cast<std::size_t>(n), {});
    std::vector<RowSums> sums(static_cast<std::size_t>(n));
    float* logprobs = result.label_logprob_T.data_ptr<float>();
    on_threads(pool_, n, [&](std::int64_t r) { sums[r] = row(r, index[r], logprobs[index[r]]); });
    for (const RowSums& row : sums) {
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

  float logit(std::int64_t r, std::int32_t id) { return tile_.logits(static_cast<std::uint64_t>(id))[r]; }
  double cap_derivative(float logit) const {
    const double cap = options_.scaling.softcap, ratio = cap > 0 ? logit / cap : 0;
    return 1 - ratio * ratio;
  }

  RowSums row(std::int64_t r, std::int64_t t, float& label_logprob) {
    plain_.merge(tile_.num_slices(), tile_.columns(), r);
    if (two_) second_.merge(tile_.num_slices(), tile_.columns(), r);
    const auto label = static_cast<std::int32_t>(rows_.labels[t]);
    const double weight = rows_.weight(t), log_label = plain_.log_probability(r, logit(r, label));
    label_logprob = static_cast<float>(log_label);
    const double lm = scale_ * weight * options_.distill.lm_weight;
    RowSums sums{lm * -log_label, weight * -log_label, 0, false};
    plain_.coefficients[r] = lm;
    double at_label = -lm;
    std::vector<Special>& specials = specials_[static_cast<std::size_t>(r)];
    if (distills_ && rows_.has_teacher(t)) at_label = distill(r, t, label, lm, sums, specials);
    if (options_.gradient && at_label != 0) {
      specials.push_back(
          {label, static_cast<std::int32_t>(r), static_cast<float>(at_label * cap_derivative(logit(r, label))), true});
    }
    plain_.finish(r);
    if (two_) second_.finish(r);
    return sums;
  }

  // Returns what is left to be added at the label.
  double distill(std::int64_t r, std::int64_t t, std::int32_t label, double lm, RowSums& sums,
                 std::vector<Special>& specials) {
    thread_local std::vector<double> log_q;
    DistillRow teacher(options_.distill, V_, sampled_);
    const auto K = static_cast<std::size_t>(rows_.K);
    teacher.set_teacher({rows_.ids_TK.const_data_ptr<std::int32_t>() + t * rows_.K, K},
                        {rows_.logprobs_TK.const_data_ptr<float>() + t * rows_.K, K}, label, rows_.entropy(t),
                        rows_.tail(t));
    const std::span<const std::int32_t> ids = teacher.ids();
    log_q.resize(ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i) log_q[i] = tempered().log_probability(r, logit(r, ids[i]));
    const DistillRow::Result compared = teacher.compare(log_q);
    const double weight = rows_.weight(t), factor = scale_ * weight * options_.distill.weight;
    sums.loss += factor * compared.loss;
    sums.distill = weight * compared.loss;
    sums.teacher = true;
    tempered().coefficients[r] += factor * compared.dense;
    if (!options_.gradient) return 0;
    double at_label = -lm;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const float z = logit(r, ids[i]);
      double value = factor * compared.entries[i];
      if (lm != 0) value += lm * std::exp(plain_.log_probability(r, z));
      if (ids[i] == label) value += std::exchange(at_label, 0.0);
      specials.push_back({ids[i], static_cast<std::int32_t>(r), static_cast<float>(value * cap_derivative(z)), false});
    }
    return at_label;
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
  const Rows& rows_;
  const HeadLossOptions& options_;
  bool sampled_;
  double scale_;
  float* head_gradient_;
  ThreadPool* pool_;
  HeadTile tile_;
  bool distills_ = false, two_ = false;
  Softmax plain_, second_;  // at temperature 1, at the loss's where that is another
  std::vector<std::vector<Special>> specials_;
  std::vector<Special> sorted_;
};

}  // namespace

HeadLossResult head_loss(const at::Tensor& hidden_TD, const at::Tensor& head_VD, const HeadLossTargets& targets,
                         const HeadLossOptions& options, double scale, at::Tensor& head_gradient_VD, ThreadPool* pool) {
  const auto plain = [](const at::Tensor& tensor) {
    return tensor.dim() == 2 && tensor.scalar_type() == at::kFloat && tensor.is_contiguous() && tensor.is_cpu();
  };
  MAGISTER_CHECK(plain(hidden_TD) && plain(head_VD) && hidden_TD.size(1) == head_VD.size(1), ExitCode::kInternal,
                 "hidden states and head are not contiguous f32 of one width (the products read them so); report this");
  const bool frozen = !head_gradient_VD.defined() || !options.gradient;
  MAGISTER_CHECK(frozen || (plain(head_gradient_VD) && head_gradient_VD.sizes() == head_VD.sizes()),
                 ExitCode::kInternal, "the head's gradient has not the head's shape (it is added to); report this");
  const std::int64_t T = hidden_TD.size(0);
  const Rows rows(targets, T, head_VD.size(0));
  // Checked here, for a batch without a teacher's row would not notice.
  [[maybe_unused]] const DistillRow checked(options.distill, head_VD.size(0), targets.sampled && rows.K > 0);
  HeadLossResult result;
  const auto f32 = at::TensorOptions().dtype(at::kFloat);
  if (options.gradient) result.hidden_gradient_TD = at::zeros(hidden_TD.sizes(), f32);
  result.label_logprob_T = at::full({T}, std::numeric_limits<float>::quiet_NaN(), f32);
  result.num_rows = static_cast<std::int64_t>(rows.index.size());
  if (result.num_rows == 0) return result;
  HeadLoss(hidden_TD, head_VD, rows, options, targets.sampled, scale,
           frozen ? nullptr : head_gradient_VD.data_ptr<float>(), pool)
      .run(result);
  return result;
}

std::uint64_t head_loss_bytes(std::int64_t rows, std::int64_t hidden_size, std::int64_t vocab_size, int num_threads) {
  return HeadTile::bytes(vocab_size, hidden_size, tile_rows(rows), num_threads);
}

}  // namespace magister
