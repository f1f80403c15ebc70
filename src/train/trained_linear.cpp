#include "train/trained_linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "magister/model/cpu/cpu_kernels.h"
#include "magister/model/cpu/panels.h"
#include "train/gpu_ops.h"
#include "train/gpu_products.h"

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

// The products of a pass in its precision. rows_KN have the layout of panels_of_rows; on CPUs with bf16 the product
// itself rounds x.
struct Precision {
  bool bf16;

  at::Tensor by_weight(const at::Tensor& x_TK, const at::Tensor& weight_NK) const {
    return bf16 ? product(rounded(x_TK), bf16_panels_of_weight(weight_NK)) : product(x_TK, panels_of_weight(weight_NK));
  }
  at::Tensor by_rows(const at::Tensor& x_MK, const at::Tensor& rows_KN) const {
    if (!bf16) return product(x_MK, panels_of_rows(rows_KN));
    return product(rounded(x_MK), bf16_panels_of_weight(transposed(rows_KN.to(at::kFloat))));
  }
  static at::Tensor rounded(const at::Tensor& x) { return cpu_prefers_bf16() ? x : x.to(at::kBFloat16).to(at::kFloat); }
};

// inputs_first: the weight is stored as [K, N].
class TrainedLinear : public torch::autograd::Function<TrainedLinear> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_TK, const at::Tensor& weight,
                            bool inputs_first, bool bf16) {
    const at::Tensor x = x_TK.contiguous();
    context->save_for_backward({bf16 ? x.to(at::kBFloat16) : x, weight});
    context->saved_data["inputs_first"] = inputs_first;
    context->saved_data["bf16"] = bf16;
    return inputs_first ? Precision{bf16}.by_rows(x, weight) : Precision{bf16}.by_weight(x, weight);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor gradient_TN = gradients[0].contiguous();
    const Precision precision{context->saved_data["bf16"].toBool()};
    const bool inputs_first = context->saved_data["inputs_first"].toBool();
    const at::Tensor &x_TK = saved[0], &weight = saved[1];
    variable_list out(4);
    if (context->needs_input_grad(0))
      out[0] = inputs_first ? precision.by_weight(gradient_TN, weight) : precision.by_rows(gradient_TN, weight);
    if (context->needs_input_grad(1))
      out[1] = inputs_first ? precision.by_rows(transposed(x_TK.to(at::kFloat)), gradient_TN)
                            : precision.by_rows(transposed(gradient_TN), x_TK);
    return out;
  }
};

}  // namespace

at::Tensor trained_linear(const at::Tensor& x_TK, const at::Tensor& weight, const at::Tensor& bias_N, bool inputs_first,
                          bool bf16) {
  if (GpuCodeScope::is_on()) return gpu_linear(x_TK, {{weight, bias_N}}, {bf16, inputs_first});
  const at::Tensor out_TN = TrainedLinear::apply(x_TK, weight, inputs_first, bf16);
  return bias_N.defined() ? out_TN + bias_N : out_TN;
}

}  // namespace magister
