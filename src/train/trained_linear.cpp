#include "train/trained_linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "magister/model/cpu/panels.h"

namespace magister {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor product(const at::Tensor& left_MK, const Linear& right) {
  at::Tensor out = at::empty({left_MK.size(0), right.out_features()}, at::kFloat);
  linear_tile(left_MK.const_data_ptr<float>(), left_MK.stride(0), left_MK.size(0), right, out.data_ptr<float>(),
              out.size(1), false);
  return out;
}

class TrainedLinear : public torch::autograd::Function<TrainedLinear> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_TK, const at::Tensor& weight_NK) {
    const at::Tensor x = x_TK.contiguous();
    context->save_for_backward({x, weight_NK});
    return product(x, panels_of_weight(weight_NK));
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor gradient_TN = gradients[0].contiguous();
    variable_list out(2);
    if (context->needs_input_grad(0)) out[0] = product(gradient_TN, panels_of_rows(saved[1]));
    if (context->needs_input_grad(1)) out[1] = product(transposed(gradient_TN), panels_of_rows(saved[0]));
    return out;
  }
};

}  // namespace

at::Tensor trained_linear(const at::Tensor& x_TK, const at::Tensor& weight_NK, const at::Tensor& bias_N) {
  const at::Tensor out_TN = TrainedLinear::apply(x_TK, weight_NK);
  return bias_N.defined() ? out_TN + bias_N : out_TN;
}

}  // namespace magister
