// Weights as the CPU's layers have them (cpu_weights.cpp), and the choice of a kernel for an MLP's function.
#include "model/gpu/gpu_mlp.h"

#include <ATen/ATen.h>

#include <cmath>

#include "model/gpu/expert_kernels.h"
#include "model/gpu/fp8_kernel.h"
#include "model/gpu/gpu_mxfp4.h"
#include "model/gpu/pack_mxfp4_kernel.h"

namespace magister::gpu {
namespace {

// Norms of an MLP beside experts, and of these.
void load_beside(WeightSource& source, std::int64_t number, at::Device device, GpuLayer& layer) {
  using Names = TensorNames::Layer;
  const auto vector_of = [&](std::string Names::* name) {
    return on_device(source.load_layer_whole(number, name), device);
  };
  GpuBeside& beside = layer.beside;
  beside.output_D = vector_of(&Names::dense_output_norm);
  if (!beside.is_on()) return;
  beside.experts_output_D = vector_of(&Names::experts_output_norm);
  beside.experts_input_D = vector_of(&Names::experts_input_norm);
  // The router's norm has no weight, but a learned factor of every number follows it, and 1 / sqrt(D).
  beside.router_input_D =
      vector_of(&Names::router_scale) / std::sqrt(static_cast<double>(layer.mlp_norms.input_D.numel()));
}

}  // namespace

void load_mlp(WeightSource& source, std::int64_t number, const GpuWeights& weights,
              const std::function<GpuLinear(const Linear&)>& product_of, GpuLayer& layer, const Queue& queue) {
  const bool sparse = weights.config.is_sparse(number);
  if (sparse) {
    layer.router = to_device(source.load_router(number), weights.device);
    layer.router.weight_NK = layer.router.weight_NK.to(weights.dtype);
    layer.choice_bias_X = on_device(source.load_choice_bias(number), weights.device);
    layer.expert_scales_X =
        on_device(source.load_layer_whole(number, &TensorNames::Layer::expert_scales), weights.device);
    load_beside(source, number, weights.device, layer);
    for (std::int64_t x = 0; x < weights.config.all_experts(); ++x) {
      GpuExpert& expert = layer.experts.emplace_back();
      expert.gate_up_proj = product_of(source.load_expert_gate_up_proj(number, x));
      expert.down_proj = product_of(source.load_expert_down_proj(number, x));
      if (!weights.mxfp4 || x >= weights.config.num_experts) continue;
      const auto lead = static_cast<std::int64_t>(weights.partition.expert.begin) % PackMxfp4::kGroup;
      to_mxfp4(expert.gate_up_proj, 0, queue);
      to_mxfp4(expert.down_proj, lead, queue);
    }
  }
  if (sparse && !layer.beside.is_on()) return;
  layer.gate_up_proj = product_of(source.load_gate_up_proj(number));
  layer.down_proj = product_of(source.load_down_proj(number));
  layer.xielu = source.load_xielu(number);
}

void randomize_mlp(std::int64_t number, const GpuWeights& weights,
                   const std::function<GpuLinear(std::int64_t N, std::int64_t K, bool plain)>& random,
                   GpuLayer& layer) {
  const ModelConfig& config = weights.config;
  const LayerShape& shape = layer.shape;
  const std::int64_t D = config.hidden_size;
  const auto numbers = [&](std::int64_t size, double value) {
    return at::full({size}, value, at::TensorOptions().dtype(at::kFloat).device(weights.device));
  };
  const bool sparse = config.is_sparse(number);
  if (sparse) {
    layer.router = random(shape.router_rule().logits(), D, true);
    if (config.router.choice_bias) layer.choice_bias_X = numbers(config.num_experts, 0);
    for (std::int64_t x = 0; x < config.all_experts(); ++x) {
      const std::int64_t F = x < config.num_experts ? shape.expert_mlp : shape.shared_mlp;
      layer.experts.push_back({random(2 * F, D, false), random(D, F, false)});
    }
    if (config.dense_beside_experts) {
      layer.expert_scales_X = numbers(config.num_experts, 1);
      layer.beside = {numbers(D, 1), numbers(D, 1), numbers(D, 1), numbers(D, 1 / std::sqrt(static_cast<double>(D)))};
    }
  }
  if (sparse && !layer.beside.is_on()) return;
  layer.gate_up_proj = random((shape.gated_mlp ? 2 : 1) * shape.mlp, D, false);
  layer.down_proj = random(D, shape.mlp, false);
  if (config.xielu) layer.xielu = {true, 1.0f, 1.0f};
}

MlpFunction function_of(const GpuLayer& layer) {
  const LayerShape& shape = layer.shape;
  const Xielu& xielu = layer.xielu;
  return {shape.activation, shape.gated_mlp,    xielu.is_on,       xielu.alpha_p,
          xielu.alpha_n,    shape.swiglu_alpha, shape.swiglu_limit};
}

bool gives_fp8(const MlpFunction& function, std::int64_t F) {
  return function.is_plain_gate() && F <= GateQuantize::kMostColumns;
}

void activate(const MlpFunction& function, const at::Tensor& up_RN, const ProductRows& out, const Queue& queue) {
  const std::int64_t R = up_RN.size(0), F = function.gated ? up_RN.size(1) / 2 : up_RN.size(1);
  if (out.bytes_MK.defined()) {
    MAGISTER_ASSERT(gives_fp8(function, F));
    const GateQuantize kernel{data<Bf16>(up_RN), data<std::uint8_t>(out.bytes_MK), data<float>(out.scale_M1), F,
                              function.activation};
    return launch(kernel, kernel.shape(R), queue);
  }
  with_type(up_RN.scalar_type(), [&](auto a) {
    using A = decltype(a);
    if (function.is_plain_gate()) {
      const GateMultiply<A> kernel{data<A>(up_RN), data<A>(out.x_MK), F, function.activation};
      return launch(kernel, kernel.shape(R), queue);
    }
    const ActivateRows<A> kernel{data<A>(up_RN), data<A>(out.x_MK), F, function};
    launch(kernel, kernel.shape(R), queue);
  });
}

at::Tensor add_normed_rows(const at::Tensor& a_RD, const at::Tensor& weight_a_D, const at::Tensor& b_RD,
                           const at::Tensor& weight_b_D, double eps, const Queue& queue) {
  at::Tensor out_RD = at::empty(a_RD.sizes(), a_RD.options().dtype(at::kFloat));
  with_type(a_RD.scalar_type(), [&](auto a) {
    using A = decltype(a);
    const AddNormedRows<A> kernel{data<A>(a_RD),       data<A>(b_RD), data<float>(weight_a_D), data<float>(weight_b_D),
                                  data<float>(out_RD), a_RD.size(1),  static_cast<float>(eps)};
    launch(kernel, kernel.shape(a_RD.size(0)), queue);
  });
  return out_RD;
}

}  // namespace magister::gpu
