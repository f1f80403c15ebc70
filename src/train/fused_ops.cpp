// Sums over a row run in 16 lanes, in a fixed order.
#include "train/fused_ops.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "magister/core/error.h"
#include "train/gpu_ops.h"

namespace magister {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

constexpr std::int64_t kLanes = 16;

// sum of term(i) over [0, n).
template <typename Term>
float sum_of(std::int64_t n, const Term& term) {
  float lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
  }
  for (; i < n; ++i) lanes[i % kLanes] += term(i);
  for (std::int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (std::int64_t lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  return lanes[0];
}

float inverse_root(const float* x, std::int64_t n, float eps) {
  const float squares = sum_of(n, [&](std::int64_t i) { return x[i] * x[i]; });
  return 1.0f / std::sqrt(squares / static_cast<float>(n) + eps);
}

class RmsNorm : public Function<RmsNorm> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight, double eps) {
    MAGISTER_ASSERT(x.is_contiguous() && weight.is_contiguous() && weight.numel() == x.size(-1));
    context->save_for_backward({x, weight});
    context->saved_data["eps"] = eps;
    at::Tensor out = at::empty_like(x);
    const std::int64_t n = x.size(-1), rows = x.numel() / n;
    const float* const w = weight.const_data_ptr<float>();
    for (std::int64_t row = 0; row < rows; ++row) {
      const float* const from = x.const_data_ptr<float>() + row * n;
      float* const to = out.data_ptr<float>() + row * n;
      const float root = inverse_root(from, n, static_cast<float>(eps));
      for (std::int64_t i = 0; i < n; ++i) to[i] = from[i] * root * w[i];
    }
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    const at::Tensor gradient = gradients[0].contiguous();
    const auto eps = static_cast<float>(context->saved_data["eps"].toDouble());
    at::Tensor of_x = at::empty_like(x), of_weight = at::zeros_like(weight);
    const std::int64_t n = x.size(-1), rows = x.numel() / n;
    const float* const w = weight.const_data_ptr<float>();
    float* const sums = of_weight.data_ptr<float>();
    for (std::int64_t row = 0; row < rows; ++row) {
      const float* const from = x.const_data_ptr<float>() + row * n;
      const float* const g = gradient.const_data_ptr<float>() + row * n;
      float* const to = of_x.data_ptr<float>() + row * n;
      const float root = inverse_root(from, n, eps);
      const float along = sum_of(n, [&](std::int64_t i) { return g[i] * w[i] * from[i]; });
      const float back = along * root * root / static_cast<float>(n);
      for (std::int64_t i = 0; i < n; ++i) {
        to[i] = root * (g[i] * w[i] - from[i] * back);
        sums[i] += g[i] * from[i] * root;
      }
    }
    return {of_x, of_weight, at::Tensor()};
  }
};

// Rotates one head. direction: 1 or -1; out may not be x.
void rotate_halves(const float* __restrict x, const float* __restrict cos, const float* __restrict sin, float direction,
                   std::int64_t half, float* __restrict out) {
  for (std::int64_t i = 0; i < half; ++i) {
    const float turn = sin[i] * direction;
    out[i] = x[i] * cos[i] - x[i + half] * turn;
    out[i + half] = x[i + half] * cos[i] + x[i] * turn;
  }
}

void rotate_neighbours(const float* __restrict x, const float* __restrict cos, const float* __restrict sin,
                       float direction, std::int64_t half, float* __restrict out) {
  for (std::int64_t i = 0; i < half; ++i) {
    const float turn = sin[i] * direction;
    out[2 * i] = x[2 * i] * cos[i] - x[2 * i + 1] * turn;
    out[2 * i + 1] = x[2 * i + 1] * cos[i] + x[2 * i] * turn;
  }
}

at::Tensor rotate(const at::Tensor& x_THE, const at::Tensor& cos, const at::Tensor& sin, std::int64_t turning,
                  bool interleaved, float direction) {
  const std::int64_t T = x_THE.size(0), H = x_THE.size(1), E = x_THE.size(2), half = turning / 2;
  at::Tensor out = at::empty_like(x_THE);
  const auto turn = interleaved ? rotate_neighbours : rotate_halves;
  for (std::int64_t row = 0; row < T * H; ++row) {
    const float* const from = x_THE.const_data_ptr<float>() + row * E;
    float* const to = out.data_ptr<float>() + row * E;
    const std::int64_t t = row / H;
    turn(from, cos.const_data_ptr<float>() + t * half, sin.const_data_ptr<float>() + t * half, direction, half, to);
    for (std::int64_t i = turning; i < E; ++i) to[i] = from[i];
  }
  return out;
}

// A rotation is orthogonal: its gradient rotates back.
class Rotation : public Function<Rotation> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_THE, const at::Tensor& cos,
                            const at::Tensor& sin, std::int64_t turning, bool interleaved) {
    MAGISTER_ASSERT(x_THE.is_contiguous() && cos.is_contiguous() && sin.is_contiguous() &&
                    cos.size(0) == x_THE.size(0) && 2 * cos.size(1) == turning && turning <= x_THE.size(2));
    context->save_for_backward({cos, sin});
    context->saved_data["turning"] = turning;
    context->saved_data["interleaved"] = interleaved;
    return rotate(x_THE, cos, sin, turning, interleaved, 1.0f);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    return {rotate(gradients[0].contiguous(), saved[0], saved[1], context->saved_data["turning"].toInt(),
                   context->saved_data["interleaved"].toBool(), -1.0f),
            at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

void silu_product_gradient(const float* __restrict gate, const float* __restrict up, const float* __restrict sigmoid,
                           const float* __restrict gradient, std::int64_t n, float* __restrict of_gate,
                           float* __restrict of_up) {
  for (std::int64_t i = 0; i < n; ++i) {
    const float active = gate[i] * sigmoid[i];
    of_up[i] = gradient[i] * active;
    of_gate[i] = gradient[i] * up[i] * (sigmoid[i] + active * (1.0f - sigmoid[i]));
  }
}

class SiluProduct : public Function<SiluProduct> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate, const at::Tensor& up) {
    MAGISTER_ASSERT(gate.is_contiguous() && up.is_contiguous() && gate.sizes() == up.sizes());
    context->save_for_backward({gate, up});
    return at::silu(gate).mul_(up);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &gate = saved[0], &up = saved[1];
    const at::Tensor gradient = gradients[0].contiguous();
    const at::Tensor sigmoid = at::sigmoid(gate);
    at::Tensor of_gate = at::empty_like(gate), of_up = at::empty_like(up);
    silu_product_gradient(gate.const_data_ptr<float>(), up.const_data_ptr<float>(), sigmoid.const_data_ptr<float>(),
                          gradient.const_data_ptr<float>(), gate.numel(), of_gate.data_ptr<float>(),
                          of_up.data_ptr<float>());
    return {of_gate, of_up};
  }
};

}  // namespace

at::Tensor fused_rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return GpuCodeScope::is_on() ? gpu_rms_norm(x, weight, eps) : RmsNorm::apply(x.contiguous(), weight, eps);
}

at::Tensor fused_rotation(const at::Tensor& x_THE, const RopeTable& rope, std::int64_t turning, bool interleaved) {
  return GpuCodeScope::is_on() ? gpu_rotation(x_THE, rope, turning, interleaved)
                               : Rotation::apply(x_THE.contiguous(), rope.cos_PE2, rope.sin_PE2, turning, interleaved);
}

at::Tensor fused_silu_product(const at::Tensor& gate, const at::Tensor& up) {
  return GpuCodeScope::is_on() ? gpu_gate(gate, up, Activation::kSilu)
                               : SiluProduct::apply(gate.contiguous(), up.contiguous());
}

}  // namespace magister
