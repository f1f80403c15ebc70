// The weights of a layer's MLP, or of its experts, and what is computed between an MLP's products. Prompts and decoding
// share it.
// Legend: R rows, D hidden, F MLP columns of this shard.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "magister/device/launch.h"
#include "magister/model/weights.h"
#include "model/gpu/gpu_weights.h"
#include "model/gpu/mlp_kernels.h"

namespace magister::gpu {

// Reads the products of a layer's MLP and experts, and the router. Its shape and norms are known: with an MLP beside
// experts (Gemma 4) the norms are those of the MLP. product_of: a product on the device.
void load_mlp(WeightSource& source, std::int64_t number, const GpuWeights& weights,
              const std::function<GpuLinear(const Linear&)>& product_of, GpuLayer& layer, const Queue& queue);
// The same with random numbers. random: a product of N outputs and K inputs; `plain` for the router, which has no
// codes.
void randomize_mlp(std::int64_t number, const GpuWeights& weights,
                   const std::function<GpuLinear(std::int64_t N, std::int64_t K, bool plain)>& random, GpuLayer& layer);

// The function of a layer's MLP and of its experts.
MlpFunction function_of(const GpuLayer& layer);
// True if activate() can give its rows directly in 8-bit floats.
bool gives_fp8(const MlpFunction& function, std::int64_t F);
// up_RN: gate and up, or up. Writes to out's 8-bit floats if these are defined, and then gives_fp8() must hold; else to
// its rows, [R, F] in up's dtype. Queued.
void activate(const MlpFunction& function, const at::Tensor& up_RN, const ProductRows& out, const Queue& queue);

// [R, D] f32: the sum of both rows after an RMS norm of each. Both have one dtype. Queued.
at::Tensor add_normed_rows(const at::Tensor& a_RD, const at::Tensor& weight_a_D, const at::Tensor& b_RD,
                           const at::Tensor& weight_b_D, double eps, const Queue& queue);

}  // namespace magister::gpu
