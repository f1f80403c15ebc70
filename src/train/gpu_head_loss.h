// head_loss on a GPU: the same losses and gradients in chunks of rows. There is never a [T, V] tensor: at most 1,024
// rows of logits exist, twice, and one chunk's gradient. The few numbers of a row that its loss needs come to the host
// (row_loss.h), and its coefficients go back, while the device multiplies the next chunk, so the device does not wait.
// With bf16 logits and sums are f32, and the logits' gradient is rounded once.
// Legend: T rows of a packed batch, R rows of a chunk, D hidden size, V vocabulary, J tokens of a row whose logits are
// needed.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "magister/train/head_loss.h"
#include "train/row_loss.h"

namespace magister {

class ThreadPool;

// head_gradient_VD: undefined: the head is frozen. Adds the losses to result, makes hidden_gradient_TD (on the
// device of hidden_TD) and fills label_logprob_T (on the host). The sum over a row's exponentials is f32 here. pool:
// threads of the host for the rows' losses, or null. Local.
void gpu_head_loss(const at::Tensor& hidden_TD, const at::Tensor& head_VD, const HeadRows& rows,
                   const HeadLossOptions& options, bool sampled, double scale, at::Tensor& head_gradient_VD,
                   HeadLossResult& result, ThreadPool* pool);

// Rows of logits that exist at once; depends only on the vocabulary.
std::int64_t gpu_head_rows(std::int64_t vocab_size);

}  // namespace magister
