// See row_loss.h.
#include "train/row_loss.h"

#include <ATen/ATen.h>

#include <span>
#include <utility>

#include "magister/core/error.h"

namespace magister {
namespace {

constexpr std::int64_t kNoLabel = -100;

at::Tensor column_of(const at::Tensor& tensor, at::ScalarType type, at::IntArrayRef shape, const char* name) {
  if (!tensor.defined()) return tensor;
  MAGISTER_CHECK(tensor.sizes() == shape && tensor.is_cpu(), ExitCode::kInternal,
                 "{} does not fit the rows of the batch (every row has one entry); report this", name);
  return tensor.to(type).contiguous();
}

}  // namespace

HeadRows::HeadRows(const HeadLossTargets& targets, std::int64_t T, std::int64_t V) {
  MAGISTER_CHECK(targets.labels_T.defined() && targets.labels_T.scalar_type() == at::kLong &&
                     targets.labels_T.sizes() == at::IntArrayRef({T}) && targets.labels_T.is_contiguous(),
                 ExitCode::kInternal, "labels are not {} numbers of 64 bits (one for each row); report this", T);
  labels = targets.labels_T.const_data_ptr<std::int64_t>();
  if (targets.teacher_ids_TK.defined()) {
    MAGISTER_CHECK(targets.teacher_ids_TK.dim() == 2 && targets.teacher_logprobs_TK.defined(), ExitCode::kInternal,
                   "the teacher's ids are not rows of entries with log-probabilities (both are needed); report this");
    K = targets.teacher_ids_TK.size(1);
    teacher_vocab_size = targets.teacher_vocab_size;
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

// A row without a teacher has only the cross entropy; at temperature 1 one softmax serves both.
RowLoss::RowLoss(const HeadRows& rows, const HeadLossOptions& options, std::int64_t vocab_size, bool sampled,
                 double scale)
    : rows_(rows),
      options_(options),
      V_(vocab_size),
      sampled_(sampled),
      scale_(scale),
      distills_(rows.K > 0 && options.distill.weight != 0),
      two_(distills_ && options.distill.temperature != 1) {}

RowSums RowLoss::row(std::int64_t t, const RowSoftmax& plain, const RowSoftmax& tempered, const Logit& logit,
                     std::int32_t column, std::vector<Special>& specials) const {
  const auto label = static_cast<std::int32_t>(rows_.labels[t]);
  const double weight = rows_.weight(t), log_label = plain.log_probability(logit(label));
  const double lm = scale_ * weight * options_.distill.lm_weight;
  RowSums sums;
  sums.loss = lm * -log_label;
  sums.lm = weight * -log_label;
  sums.label_logprob = static_cast<float>(log_label);
  sums.plain = lm;
  double at_label = -lm;
  if (distills_ && rows_.has_teacher(t)) at_label = distill(t, plain, tempered, logit, column, sums, specials);
  if (options_.gradient && at_label != 0)
    specials.push_back({label, column, static_cast<float>(at_label * cap_derivative(logit(label))), true});
  return sums;
}

// Returns the gradient that is left to add at the label.
double RowLoss::distill(std::int64_t t, const RowSoftmax& plain, const RowSoftmax& tempered, const Logit& logit,
                        std::int32_t column, RowSums& sums, std::vector<Special>& specials) const {
  thread_local std::vector<double> log_q;
  const auto label = static_cast<std::int32_t>(rows_.labels[t]);
  const double lm = sums.plain;
  DistillRow teacher(options_.distill, V_, sampled_, rows_.teacher_vocab_size);
  const auto K = static_cast<std::size_t>(rows_.K);
  teacher.set_teacher({rows_.ids_TK.const_data_ptr<std::int32_t>() + t * rows_.K, K},
                      {rows_.logprobs_TK.const_data_ptr<float>() + t * rows_.K, K}, label, rows_.entropy(t),
                      rows_.tail(t));
  const std::span<const std::int32_t> ids = teacher.ids();
  log_q.resize(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) log_q[i] = tempered.log_probability(logit(ids[i]));
  const DistillRow::Result compared = teacher.compare(log_q);
  const double weight = rows_.weight(t), factor = scale_ * weight * options_.distill.weight;
  sums.loss += factor * compared.loss;
  sums.distill = weight * compared.loss;
  sums.teacher = true;
  (two_ ? sums.tempered : sums.plain) += factor * compared.dense;
  if (!options_.gradient) return 0;
  double at_label = -lm;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const float z = logit(ids[i]);
    double value = factor * compared.entries[i];
    if (lm != 0) value += lm * std::exp(plain.log_probability(z));
    if (ids[i] == label) value += std::exchange(at_label, 0.0);
    specials.push_back({ids[i], column, static_cast<float>(value * cap_derivative(z)), false});
  }
  return at_label;
}

}  // namespace magister
