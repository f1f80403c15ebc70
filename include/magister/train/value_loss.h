// Losses of a value model: every token of a text that a policy wrote predicts, by the head's numbers, what the whole
// text is worth.
// Formulas: Q# (arXiv 2502.20548) fits a distribution of rewards by maximum likelihood, PITA (arXiv 2507.20067) win
// probabilities, both with the text's label at each of its tokens.
// Legend: R rows with a label, L numbers of the head, D hidden size.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace magister {

struct ValueOptions {
  //   kBce         softplus(z) - y z          y in [0, 1]: the expected reward, or the probability to be preferred
  //   kHistogram   ln sum_j exp(z_j) - z_i    i = round(y (L - 1)): the reward's atom
  //   kPreference  compares two texts after their common beginning, as a reward model does (preference_loss.h)
  enum class Loss { kBce, kPreference, kHistogram };
  Loss loss = Loss::kBce;
};

// The rows of one text with label y; together they have one weight.
struct ValueText {
  std::vector<std::int64_t> rows;  // of the batch
  double label = 0;
};

struct ValueLoss {
  double loss = 0;  // sum over texts of the mean over their rows
  // Sums over texts: of the label, and of the mean over its rows of what the model expects.
  double label = 0, value = 0;
  at::Tensor hidden_gradient_RD;  // f32
  at::Tensor head_gradient_LD;    // f32
};

// hidden_RD: the texts' rows one after the other; head_LD: f32. Computed in f64. Local.
ValueLoss value_loss(const ValueOptions& options, const std::vector<ValueText>& texts, const at::Tensor& hidden_RD,
                     const at::Tensor& head_LD, double scale);

}  // namespace magister
