// head_loss: hidden states -> logits -> loss -> gradients of hidden states and head, in tiles of rows. There is never a
// [T, V] tensor: 48 rows of logits exist at a time (16 below 480 rows, 96 from 4096 rows on). From T = 2048 on all work
// memory together is at most 0.03 of T x V x 4 bytes.
// Rows without a label cost nothing. All tiles and the order of all sums are fixed: the bits depend only on the rows,
// not on the threads.
// Legend: T rows of a packed batch, D hidden size, V vocabulary, k kept entries of a teacher's row.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "magister/train/distill_loss.h"

namespace magister {

class ThreadPool;

struct HeadLossTargets {
  at::Tensor labels_T;  // i64: the token after row t, which row t predicts; -100: no loss in this row
  // A teacher's rows; all undefined without distillation. Row t is the teacher's distribution of labels_T[t].
  at::Tensor teacher_ids_TK;       // i32 or i64; below 0: padding
  at::Tensor teacher_logprobs_TK;  // f32, over the whole vocabulary; -inf: padding. In sampled rows logs of weights
  at::Tensor teacher_valid_T;      // u8 or bool; 0: no distillation in this row; undefined: all rows with a label
  at::Tensor teacher_entropy_T;    // f32, for sampled rows: makes the cross entropy a divergence; may be undefined
  // f32: mass that a row does not keep, which f16 entries do not give to 1e-3; may be undefined.
  at::Tensor teacher_tail_T;
  at::Tensor row_weight_T;  // f32: multiplies the row's loss and gradient; undefined: 1
  bool sampled = false;     // the teacher's rows are unbiased samples (teacher_logits with `encoding: sampled`)
  std::int64_t teacher_vocab_size = 0;  // rows of the teacher's table; 0: the student's
};

// logits = softcap * tanh(multiplier * (hidden . head) / softcap), as in the model's family; softcap 0: none.
struct HeadScaling {
  double multiplier = 1.0;
  double softcap = 0.0;
};

struct HeadLossOptions {
  DistillOptions distill{};
  HeadScaling scaling{};
  bool gradient = true;  // false: losses and log-probabilities only
  bool bf16 = false;     // GPU code: both operands of the head's products are rounded to bf16, sums are f32
  // Use a GPU's operations (src/train/gpu_head_loss.h), on the device of hidden_TD, head_VD and head_gradient_VD.
  bool gpu_code = false;
};

struct HeadLossResult {
  // Sums over the rows with a label, each times its row_weight; `loss` also times `scale`, with both parts times their
  // weights.
  double loss = 0;
  double lm = 0;       // cross entropy, nats
  double distill = 0;  // times temperature^2
  std::int64_t num_rows = 0, num_teacher_rows = 0;
  // Gradient of `loss`, f32, on the device of hidden_TD; exactly 0 in rows without a label. Undefined without gradient.
  at::Tensor hidden_gradient_TD;
  at::Tensor label_logprob_T;  // f32, CPU, at temperature 1; NaN in rows without a label
};

// hidden_TD and head_VD: f32, contiguous, on the CPU unless options.gpu_code; targets: CPU. loss = scale * sum of
// row_weight * (weight * distillation + lm_weight * cross entropy). head_gradient_VD: f32 like head_VD, the gradient is
// added to it; undefined: the head is frozen. pool: may be null. Error(kData) for labels and teacher's tokens outside
// the vocabulary, Error(kInternal) for shapes that do not fit. Logits that are not finite give losses that are not
// finite; the caller skips the step. Local.
HeadLossResult head_loss(const at::Tensor& hidden_TD, const at::Tensor& head_VD, const HeadLossTargets& targets,
                         const HeadLossOptions& options, double scale, at::Tensor& head_gradient_VD,
                         ThreadPool* pool = nullptr);

// Bytes of work memory besides the result, for memory plans. GPU code works in chunks of at most 1,024 rows.
std::uint64_t head_loss_bytes(std::int64_t rows, std::int64_t hidden_size, std::int64_t vocab_size, int num_threads);
std::uint64_t gpu_head_loss_bytes(std::int64_t rows, std::int64_t hidden_size, std::int64_t vocab_size);

}  // namespace magister
