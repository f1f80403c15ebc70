// A formula of ATen's operations whose steps are not kept for the way back: it runs again there, and has equal bits.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <vector>

namespace magister {

// See recomputed().
template <at::Tensor (*kFormula)(const std::vector<at::Tensor>& inputs, double a, double b)>
class Recomputed : public torch::autograd::Function<Recomputed<kFormula>> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, at::TensorList inputs, double a, double b) {
    context->save_for_backward(inputs.vec());
    context->saved_data["a"] = a;
    context->saved_data["b"] = b;
    return kFormula(inputs.vec(), a, b);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const c10::AutoGradMode with_graph(true);
    std::vector<at::Tensor> leaves;
    for (const at::Tensor& input : context->get_saved_variables())
      leaves.push_back(input.detach().requires_grad_(true));
    const at::Tensor out = kFormula(leaves, context->saved_data["a"].toDouble(), context->saved_data["b"].toDouble());
    torch::autograd::variable_list of_inputs = torch::autograd::grad({out}, leaves, {gradients[0]});
    of_inputs.resize(leaves.size() + 2);
    return of_inputs;
  }
};

// Returns formula(inputs, a, b), which keeps the inputs alone.
template <at::Tensor (*kFormula)(const std::vector<at::Tensor>& inputs, double a, double b)>
at::Tensor recomputed(const std::vector<at::Tensor>& inputs, double a = 0, double b = 0) {
  return Recomputed<kFormula>::apply(at::TensorList(inputs), a, b);  // autograd does not look into another list
}

}  // namespace magister
