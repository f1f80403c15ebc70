// The losses of one row of logits, in f64: from the logits of its few special tokens and the numbers of its softmax.
// They are the same on CPUs and GPUs, which differ in how the logits of a row arrive and where its gradient goes.
// Legend: T rows of a packed batch, V vocabulary, K kept entries of a teacher's row.
#pragma once

#include <ATen/core/Tensor.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "magister/train/head_loss.h"

namespace magister {

// The targets as plain arrays, checked. The labels are kept by reference.
struct HeadRows {
  std::vector<std::int64_t> index;  // rows with a label
  const std::int64_t* labels;
  at::Tensor ids_TK, logprobs_TK, valid_T, entropy_T, tail_T, weight_T;
  std::int64_t K = 0, teacher_vocab_size = 0;

  // Error(kData) for labels outside the vocabulary, Error(kInternal) for shapes that do not fit.
  HeadRows(const HeadLossTargets& targets, std::int64_t T, std::int64_t V);
  bool has_teacher(std::int64_t t) const {
    return K > 0 && (!valid_T.defined() || valid_T.const_data_ptr<std::uint8_t>()[t] != 0);
  }
  double weight(std::int64_t t) const { return weight_T.defined() ? weight_T.const_data_ptr<float>()[t] : 1.0; }
  double entropy(std::int64_t t) const { return value_or_nan(entropy_T, t); }
  double tail(std::int64_t t) const { return value_or_nan(tail_T, t); }

 private:
  static double value_or_nan(const at::Tensor& column, std::int64_t t) {
    return column.defined() ? column.const_data_ptr<float>()[t] : std::numeric_limits<double>::quiet_NaN();
  }
};

// The softmax of a row's logits times a factor: sum is that of exp(factor * logit - maximum).
struct RowSoftmax {
  float factor = 1;
  float maximum = 0;
  double sum = 0;
  double log_probability(float logit) const { return static_cast<double>(logit) * factor - maximum - std::log(sum); }
};

// A gradient at one token of one row, which replaces the softmax's or is added to it.
struct Special {
  std::int32_t id;
  std::int32_t column;  // of the tile: the row's position
  float value;
  bool add;  // to the softmax's, instead of replacing it
};

struct RowSums {
  double loss = 0, lm = 0, distill = 0;
  bool teacher = false;
  float label_logprob = 0;
  // Every token's gradient by its (capped) logit is plain * its probability + tempered * that at the loss's
  // temperature, if there are two.
  double plain = 0, tempered = 0;
};

class RowLoss {
 public:
  using Logit = std::function<float(std::int32_t id)>;

  // rows and options are kept by reference. sampled: see HeadLossTargets.
  RowLoss(const HeadRows& rows, const HeadLossOptions& options, std::int64_t vocab_size, bool sampled, double scale);

  // Reports whether the loss needs a second softmax, at tempered_factor().
  bool two() const { return two_; }
  float tempered_factor() const { return two_ ? static_cast<float>(1 / options_.distill.temperature) : 1.0f; }
  // Row t, which has a label. tempered: `plain` again unless two(). Appends special gradients for `column`, by the
  // logit before its soft cap. Any thread.
  RowSums row(std::int64_t t, const RowSoftmax& plain, const RowSoftmax& tempered, const Logit& logit,
              std::int32_t column, std::vector<Special>& specials) const;
  // Derivative of a capped logit by the uncapped one.
  double cap_derivative(float logit) const {
    const double cap = options_.scaling.softcap, ratio = cap > 0 ? logit / cap : 0;
    return 1 - ratio * ratio;
  }

 private:
  double distill(std::int64_t t, const RowSoftmax& plain, const RowSoftmax& tempered, const Logit& logit,
                 std::int32_t column, RowSums& sums, std::vector<Special>& specials) const;

  const HeadRows& rows_;
  const HeadLossOptions& options_;
  std::int64_t V_;
  bool sampled_;
  double scale_;
  bool distills_, two_;
};

}  // namespace magister
