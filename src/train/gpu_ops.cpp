// See gpu_ops.h.
#include "train/gpu_ops.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "magister/core/error.h"
#include "train/gpu/norm_kernels.h"
#include "train/gpu/pass_kernels.h"
#include "train/gpu_numbers.h"

namespace magister {

gpu::Queue queue_at(const at::Tensor& tensor) {
  return tensor.is_cpu() ? gpu::Queue{} : gpu::Queue{static_cast<int>(tensor.device().index()), nullptr};
}

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

gpu::NormRowsOf norm_rows(const at::Tensor& x, const at::Tensor& weight) {
  const std::int64_t D = x.size(-1);
  const bool eight = D % 8 == 0 && is_aligned_16(x) && is_aligned_16(weight);
  return {x.numel() / D, D, 1, D, eight};
}

template <typename Out>
void run_norm(const at::Tensor& x, const at::Tensor& weight, double eps, at::Tensor& out, at::Tensor& roots_R) {
  const gpu::TrainNorm<float, Out> kernel{numbers<const float>(x), numbers<const float>(weight),
                                          numbers<Out>(out),       numbers<float>(roots_R),
                                          norm_rows(x, weight),    static_cast<float>(eps)};
  start(kernel, queue_at(x));
}

// Returns the gradients by x and by the weight; the latter is undefined unless of_weight.
template <typename G>
std::pair<at::Tensor, at::Tensor> run_norm_back(const at::Tensor& gradient, const variable_list& saved,
                                                const at::Tensor& other, bool of_weight) {
  const at::Tensor &x = saved[0], &weight = saved[1], &roots_R = saved[2];
  at::Tensor of_x = at::empty_like(x), partial_UD;
  gpu::TrainNormBack<float, G> kernel{numbers<const G>(gradient),
                                      numbers<const float>(x),
                                      numbers<const float>(weight),
                                      numbers<const float>(roots_R),
                                      numbers<const float>(other),
                                      numbers<float>(of_x),
                                      nullptr,
                                      norm_rows(x, weight)};
  kernel.rows.eight = kernel.rows.eight && is_aligned_16(gradient) && (!other.defined() || is_aligned_16(other));
  if (of_weight) {
    partial_UD = at::empty({kernel.num_partial(), weight.numel()}, weight.options());
    kernel.partial_UD = numbers<float>(partial_UD);
  }
  start(kernel, queue_at(x));
  return {of_x, of_weight ? partial_UD.sum(0) : at::Tensor()};
}

// Returns the normed rows, and with with_x also x.
class GpuRmsNorm : public Function<GpuRmsNorm> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight, double eps,
                               bool bf16, bool with_x) {
    MAGISTER_ASSERT(x.is_contiguous() && weight.is_contiguous() && x.scalar_type() == at::kFloat);
    at::Tensor out = at::empty_like(x, bf16 ? at::kBFloat16 : at::kFloat);
    at::Tensor roots_R = at::empty({x.numel() / x.size(-1)}, x.options());
    bf16 ? run_norm<gpu::Bf16>(x, weight, eps, out, roots_R) : run_norm<float>(x, weight, eps, out, roots_R);
    context->save_for_backward({x, weight, roots_R});
    context->set_materialize_grads(false);
    return with_x ? variable_list{out, x.view_as(x)} : variable_list{out};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor other = gradients.size() > 1 && gradients[1].defined() ? gradients[1].contiguous() : at::Tensor();
    variable_list out(5);
    if (!gradients[0].defined()) {
      out[0] = other;
      return out;
    }
    const at::Tensor gradient = gradients[0].contiguous();
    const variable_list saved = context->get_saved_variables();
    const bool of_weight = context->needs_input_grad(1);
    std::tie(out[0], out[1]) = gradient.scalar_type() == at::kBFloat16
                                   ? run_norm_back<gpu::Bf16>(gradient, saved, other, of_weight)
                                   : run_norm_back<float>(gradient, saved, other, of_weight);
    return out;
  }
};

at::Tensor run_rotation(const at::Tensor& x_THE, const at::Tensor& cos, const at::Tensor& sin, std::int64_t turning,
                        bool interleaved, float direction) {
  at::Tensor out = at::empty_like(x_THE);
  const std::int64_t T = x_THE.size(0), H = x_THE.size(1), E = x_THE.size(2);
  const bool eight = E % 8 == 0 && turning % 16 == 0 && is_aligned_16(x_THE);
  const gpu::HeadsOf<const float> none{nullptr, 0};
  const gpu::HeadsOf<float> nowhere{nullptr, 0};
  const gpu::TurnHeads<float, float> kernel{{numbers<const float>(x_THE), H * E},
                                            none,
                                            none,
                                            {numbers<float>(out), H * E},
                                            nowhere,
                                            nowhere,
                                            numbers<const float>(cos),
                                            numbers<const float>(sin),
                                            T,
                                            H,
                                            0,
                                            E,
                                            turning,
                                            interleaved,
                                            false,
                                            eight,
                                            direction};
  start(kernel, queue_at(x_THE));
  return out;
}

// A rotation is orthogonal: its gradient rotates back.
class GpuRotation : public Function<GpuRotation> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_THE, const at::Tensor& cos,
                            const at::Tensor& sin, std::int64_t turning, bool interleaved) {
    context->save_for_backward({cos, sin});
    context->saved_data["turning"] = turning;
    context->saved_data["interleaved"] = interleaved;
    return run_rotation(x_THE.contiguous(), cos, sin, turning, interleaved, 1.0f);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    return {run_rotation(gradients[0].contiguous(), saved[0], saved[1], context->saved_data["turning"].toInt(),
                         context->saved_data["interleaved"].toBool(), -1.0f),
            at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

// Layout of the rows of gate and up.
gpu::GateRows gate_rows(const at::Tensor& gate_TF, const at::Tensor& up_TF) {
  const std::int64_t F = gate_TF.size(1);
  const bool eight = F % 8 == 0 && gate_TF.stride(0) % 8 == 0 && up_TF.stride(0) % 8 == 0 && is_aligned_16(gate_TF) &&
                     is_aligned_16(up_TF);
  return {gate_TF.size(0), F, gate_TF.stride(0), up_TF.stride(0), eight};
}

template <typename X>
at::Tensor run_gate(const at::Tensor& gate_TF, const at::Tensor& up_TF, Activation activation) {
  at::Tensor out_TF = at::empty(gate_TF.sizes(), gate_TF.options());
  start(gpu::TrainGate<X>{numbers<const X>(gate_TF), numbers<const X>(up_TF), numbers<X>(out_TF),
                          gate_rows(gate_TF, up_TF), activation},
        queue_at(gate_TF));
  return out_TF;
}

template <typename X>
at::Tensor run_gate_back(const at::Tensor& gradient_TF, const at::Tensor& gate_TF, const at::Tensor& up_TF,
                         Activation activation) {
  at::Tensor of_both_TF2 = at::empty({gate_TF.size(0), 2 * gate_TF.size(1)}, gate_TF.options());
  gpu::GateRows rows = gate_rows(gate_TF, up_TF);
  rows.eight = rows.eight && is_aligned_16(gradient_TF);
  start(gpu::TrainGateBack<X>{numbers<const X>(gradient_TF), numbers<const X>(gate_TF), numbers<const X>(up_TF),
                              numbers<X>(of_both_TF2), rows, activation},
        queue_at(gate_TF));
  return of_both_TF2;
}

at::Tensor gate_of_pair(const at::Tensor& gate_TF, const at::Tensor& up_TF, Activation activation) {
  return gate_TF.scalar_type() == at::kBFloat16 ? run_gate<gpu::Bf16>(gate_TF, up_TF, activation)
                                                : run_gate<float>(gate_TF, up_TF, activation);
}

at::Tensor gate_of_pair_back(const at::Tensor& gradient, const at::Tensor& gate_TF, const at::Tensor& up_TF,
                             Activation act) {
  const at::Tensor gradient_TF = gradient.to(gate_TF.scalar_type()).contiguous();
  return gate_TF.scalar_type() == at::kBFloat16 ? run_gate_back<gpu::Bf16>(gradient_TF, gate_TF, up_TF, act)
                                                : run_gate_back<float>(gradient_TF, gate_TF, up_TF, act);
}

class GpuGatePair : public Function<GpuGatePair> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate_TF, const at::Tensor& up_TF,
                            std::int64_t activation) {
    context->save_for_backward({gate_TF, up_TF});
    context->saved_data["activation"] = activation;
    return gate_of_pair(gate_TF, up_TF, static_cast<Activation>(activation));
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const std::vector<at::Tensor> both =
        gate_of_pair_back(gradients[0], saved[0], saved[1],
                          static_cast<Activation>(context->saved_data["activation"].toInt()))
            .chunk(2, 1);
    return {both[0], both[1], at::Tensor()};
  }
};

class GpuGate : public Function<GpuGate> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate_up_TF2, std::int64_t activation) {
    context->save_for_backward({gate_up_TF2});
    context->saved_data["activation"] = activation;
    return magister::gate_forward(gate_up_TF2, static_cast<Activation>(activation));
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {magister::gate_backward(gradients[0], context->get_saved_variables()[0],
                                    static_cast<Activation>(context->saved_data["activation"].toInt())),
            at::Tensor()};
  }
};

}  // namespace

at::Tensor gpu_rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, at::ScalarType to) {
  return GpuRmsNorm::apply(x.to(at::kFloat).contiguous(), weight, eps, to == at::kBFloat16, false)[0];
}

std::pair<at::Tensor, at::Tensor> gpu_norm_of_stream(const at::Tensor& x, const at::Tensor& weight, double eps,
                                                     at::ScalarType to) {
  const variable_list both = GpuRmsNorm::apply(x, weight, eps, to == at::kBFloat16, true);
  return {both[0], both[1]};
}

at::Tensor gpu_rotation(const at::Tensor& x_THE, const RopeTable& rope, std::int64_t turning, bool interleaved) {
  return GpuRotation::apply(x_THE, rope.cos_PE2, rope.sin_PE2, turning, interleaved);
}

at::Tensor gpu_gate(const at::Tensor& gate_TF, const at::Tensor& up_TF, Activation activation) {
  return GpuGatePair::apply(gate_TF.contiguous(), up_TF.contiguous(), static_cast<std::int64_t>(activation));
}

at::Tensor gpu_gate(const at::Tensor& gate_up_TF2, Activation activation) {
  return GpuGate::apply(gate_up_TF2.contiguous(), static_cast<std::int64_t>(activation));
}

at::Tensor norm_forward(const at::Tensor& x, const at::Tensor& weight, double eps) {
  at::Tensor out = at::empty_like(x, at::kBFloat16), roots_R = at::empty({x.numel() / x.size(-1)}, x.options());
  run_norm<gpu::Bf16>(x, weight, eps, out, roots_R);
  return out;
}

at::Tensor gate_forward(const at::Tensor& gate_up_TF2, Activation activation) {
  const std::vector<at::Tensor> halves = gate_up_TF2.chunk(2, 1);
  return gate_of_pair(halves[0], halves[1], activation);
}

at::Tensor gate_backward(const at::Tensor& gradient_TF, const at::Tensor& gate_up_TF2, Activation activation) {
  const std::vector<at::Tensor> halves = gate_up_TF2.chunk(2, 1);
  return gate_of_pair_back(gradient_TF, halves[0], halves[1], activation);
}

}  // namespace magister
