// See gpu_ops.h.
#include "train/gpu_ops.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "magister/core/error.h"

namespace magister {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

at::Tensor inverse_root(const at::Tensor& x, double eps) { return x.square().mean(-1, true).add_(eps).rsqrt_(); }

class GpuRmsNorm : public Function<GpuRmsNorm> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight, double eps) {
    context->save_for_backward({x, weight});
    context->saved_data["eps"] = eps;
    return (x * inverse_root(x, eps)).mul_(weight);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &gradient = gradients[0];
    const at::Tensor root = inverse_root(x, context->saved_data["eps"].toDouble());
    const at::Tensor normed = x * root;
    variable_list out(3);
    if (context->needs_input_grad(0)) {
      const at::Tensor scaled = gradient * weight;
      const at::Tensor along = (scaled * normed).mean(-1, true);
      out[0] = (scaled - normed * along).mul_(root);
    }
    if (context->needs_input_grad(1)) out[1] = (gradient * normed).reshape({-1, weight.numel()}).sum(0);
    return out;
  }
};

// direction 1 or -1.
at::Tensor rotate(const at::Tensor& x_THE, const at::Tensor& cos_TF, const at::Tensor& sin_TF, std::int64_t turning,
                  bool interleaved, double direction) {
  const std::int64_t half = turning / 2, rest = x_THE.size(2) - turning;
  const at::Tensor cos = cos_TF.unsqueeze(1), sin = (sin_TF * direction).unsqueeze(1);
  const at::Tensor turned = x_THE.narrow(2, 0, turning);
  const at::Tensor pairs = interleaved ? turned.unflatten(2, {half, 2}) : turned.unflatten(2, {2, half});
  const std::int64_t of_pair = interleaved ? 3 : 2;
  const at::Tensor a = pairs.select(of_pair, 0), b = pairs.select(of_pair, 1);
  const at::Tensor out = at::stack({a * cos - b * sin, b * cos + a * sin}, of_pair).flatten(2);
  return rest == 0 ? out : at::cat({out, x_THE.narrow(2, turning, rest)}, 2);
}

// Orthogonal: the gradient turns back.
class GpuRotation : public Function<GpuRotation> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_THE, const at::Tensor& cos,
                            const at::Tensor& sin, std::int64_t turning, bool interleaved) {
    context->save_for_backward({cos, sin});
    context->saved_data["turning"] = turning;
    context->saved_data["interleaved"] = interleaved;
    return rotate(x_THE, cos, sin, turning, interleaved, 1.0);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    return {rotate(gradients[0], saved[0], saved[1], context->saved_data["turning"].toInt(),
                   context->saved_data["interleaved"].toBool(), -1.0),
            at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

class GpuSiluProduct : public Function<GpuSiluProduct> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate, const at::Tensor& up) {
    context->save_for_backward({gate, up});
    return at::silu(gate).mul_(up);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &gate = saved[0], &up = saved[1], &gradient = gradients[0];
    return {at::silu_backward(gradient * up, gate), at::silu(gate).mul_(gradient)};
  }
};

at::Tensor operand(const at::Tensor& x, bool bf16) { return bf16 ? x.to(at::kBFloat16) : x; }

at::Tensor gpu_multiply(const at::Tensor& left_MK, const at::Tensor& right_KN) {
  if (left_MK.scalar_type() == at::kFloat) return at::mm(left_MK, right_KN);
  // ATen's CPU code would round the sums.
  if (left_MK.is_cpu()) return at::mm(left_MK.to(at::kFloat), right_KN.to(at::kFloat));
  return at::mm(left_MK, right_KN, at::kFloat);
}

class GpuLinear : public Function<GpuLinear> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_TK, const at::Tensor& weight_NK, bool bf16) {
    const at::Tensor x = operand(x_TK, bf16);
    context->save_for_backward({x, weight_NK});
    context->saved_data["bf16"] = bf16;
    return gpu_multiply(x, operand(weight_NK, bf16).t());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const bool bf16 = context->saved_data["bf16"].toBool();
    const at::Tensor gradient_TN = operand(gradients[0], bf16);
    variable_list out(3);
    if (context->needs_input_grad(0)) out[0] = gpu_multiply(gradient_TN, operand(saved[1], bf16));
    if (context->needs_input_grad(1)) out[1] = gpu_multiply(gradient_TN.t(), saved[0]);
    return out;
  }
};

}  // namespace

at::Tensor gpu_rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return GpuRmsNorm::apply(x, weight, eps);
}

at::Tensor gpu_rotation(const at::Tensor& x_THE, const RopeTable& rope, std::int64_t turning, bool interleaved) {
  return GpuRotation::apply(x_THE, rope.cos_PE2, rope.sin_PE2, turning, interleaved);
}

at::Tensor gpu_silu_product(const at::Tensor& gate, const at::Tensor& up) { return GpuSiluProduct::apply(gate, up); }

at::Tensor gpu_linear(const at::Tensor& x_TK, const at::Tensor& weight_NK, const at::Tensor& bias_N, bool bf16) {
  const at::Tensor out_TN = GpuLinear::apply(x_TK, weight_NK, bf16);
  return bias_N.defined() ? out_TN + bias_N : out_TN;
}

at::Tensor gpu_product(const at::Tensor& left_MK, const at::Tensor& right_KN, bool bf16) {
  return gpu_multiply(operand(left_MK, bf16), operand(right_KN, bf16));
}

}  // namespace magister
