// Value models. The label of a text is the label of each of its rows.
#include <ATen/ATen.h>

#include "magister/device/upload.h"
#include "train/objective_loss.h"

namespace magister {

LossSums value_losses(const MicroBatch& batch, const HeadPass& pass, double scale, HeadGradients* gradients) {
  std::vector<std::int64_t> rows;
  for (const ValueText& text : batch.values) rows.insert(rows.end(), text.rows.begin(), text.rows.end());
  const at::Tensor rows_R = upload(at::tensor(rows, at::kLong), pass.device);
  const ValueLoss all =
      value_loss(pass.trainer.value, batch.values, pass.hidden_TD.index_select(0, rows_R), pass.head, scale);
  if (gradients != nullptr) {
    gradients->hidden_TD = at::zeros_like(pass.hidden_TD);
    gradients->hidden_TD.index_copy_(0, rows_R, all.hidden_gradient_RD);
    gradients->head.add_(all.head_gradient_LD);
  }
  LossSums sums;
  sums.loss = all.loss;
  sums.value = {all.label, all.value};
  return sums;
}

}  // namespace magister
