// See altup.h. Products with the small weights of AltUp are f32 in any precision, as in inference.
#include "train/altup.h"

#include <ATen/ATen.h>

#include <numbers>
#include <vector>

#include "magister/model/plain_activation.h"
#include "train/fused_ops.h"
#include "train/trained_linear.h"

namespace magister {
namespace {

using Names = TensorNames::Layer;

constexpr double kLeastSquare = 1e-5;  // of a product whose mean square becomes another

at::Tensor mean_square(const at::Tensor& x_TD) { return x_TD.square().mean(-1, true); }

// x, scaled so that its mean square becomes that of `like`.
at::Tensor matched(const at::Tensor& x_TD, const at::Tensor& like_TD) {
  return x_TD * (mean_square(like_TD).sqrt() / mean_square(x_TD).clamp_min(kLeastSquare).sqrt());
}

// tanh(router(norm(x) / D)), [T, A].
at::Tensor modalities(const at::Tensor& x_TD, const LayerWeights& weights, const LayerShape& shape) {
  const at::Tensor normed_TD =
      fused_rms_norm(x_TD.contiguous(), weights(&Names::altup_router_norm), shape.rms_norm_eps) /
      static_cast<double>(shape.hidden_size);
  return at::tanh(trained_linear(normed_TD, weights(&Names::altup_router), {}, false, false));
}

}  // namespace

at::Tensor spread_stream(const at::Tensor& hidden_TD, std::span<const at::Tensor> projections, bool bf16) {
  std::vector<at::Tensor> vectors = {hidden_TD};
  for (const at::Tensor& weight : projections)
    vectors.push_back(matched(trained_linear(hidden_TD, weight, {}, false, bf16), hidden_TD));
  return at::stack(vectors, 1);
}

at::Tensor join_stream(const at::Tensor& streams_TAD, std::span<const at::Tensor> unembeddings, bool bf16) {
  const std::vector<at::Tensor> vectors = streams_TAD.unbind(1);
  at::Tensor sum_TD = vectors[0];
  for (std::size_t i = 1; i < vectors.size(); ++i)
    sum_TD =
        sum_TD + matched(trained_linear(vectors[i].contiguous(), unembeddings[i - 1], {}, false, bf16), vectors[0]);
  return sum_TD / static_cast<double>(vectors.size());
}

at::Tensor predicted_stream(const at::Tensor& streams_TAD, const LayerWeights& weights, const ModelConfig& config,
                            const LayerShape& shape, bool clip) {
  const std::int64_t A = config.altup->inputs;
  const double limit = config.altup->coef_clip;
  at::Tensor coefficients = weights(&Names::altup_prediction);
  if (clip && limit > 0)  // the difference is 0, and has the gradient
    coefficients = coefficients.detach().clamp(-limit, limit) + (coefficients - coefficients.detach());
  const at::Tensor modality_TA = modalities(streams_TAD.select(1, config.altup->active), weights, shape),
                   parts_TX = trained_linear(modality_TA, coefficients, {}, false, false);
  return streams_TAD + at::bmm(parts_TX.view({-1, A, A}), streams_TAD);
}

at::Tensor corrected_stream(const at::Tensor& predicted_TAD, const at::Tensor& block_TD, const at::Tensor& vectors_TP,
                            const LayerWeights& weights, const ModelConfig& config, const LayerShape& shape,
                            bool clip) {
  const std::int64_t A = config.altup->inputs, active = config.altup->active;
  const double limit = config.altup->coef_clip;
  at::Tensor coefficients = weights(&Names::altup_correction);
  if (clip && limit > 0) coefficients = coefficients.clamp(-limit, limit);
  const at::Tensor parts_TA =
      trained_linear(modalities(block_TD, weights, shape), coefficients, {}, false, false) + 1.0;
  const at::Tensor change_TD = block_TD - predicted_TAD.select(1, active);
  const at::Tensor corrected_TAD = predicted_TAD + parts_TA.unsqueeze(2) * change_TD.unsqueeze(1);
  at::Tensor read_TD = corrected_TAD.select(1, active);
  if (config.altup->scales_corrected) read_TD = read_TD * weights(&Names::altup_scale);
  const at::Tensor addend_TD = added_by_vectors(read_TD.contiguous(), vectors_TP, weights, shape);
  return at::cat({corrected_TAD.narrow(1, 0, 1), corrected_TAD.narrow(1, 1, A - 1) + addend_TD.unsqueeze(1)}, 1);
}

at::Tensor added_by_vectors(const at::Tensor& stream_TD, const at::Tensor& vectors_TP, const LayerWeights& weights,
                            const LayerShape& shape) {
  const at::Tensor active_TP =
      activated(weights.linear(stream_TD, &Names::per_layer_gate, nullptr), shape.activation) * vectors_TP;
  return fused_rms_norm(weights.linear(active_TP, &Names::per_layer_output, nullptr),
                        weights.norm(&Names::per_layer_output_norm), shape.rms_norm_eps);
}

at::Tensor with_laurel(const at::Tensor& hidden_TD, const at::Tensor& normed_TD, const LayerWeights& weights,
                       const LayerShape& shape) {
  const at::Tensor low_Tr = weights.linear(normed_TD, &Names::laurel_left, nullptr),
                   out_TD = fused_rms_norm(weights.linear(low_Tr, &Names::laurel_right, nullptr),
                                           weights.norm(&Names::laurel_norm), shape.rms_norm_eps);
  return (hidden_TD + normed_TD + out_TD) / std::numbers::sqrt2;
}

at::Tensor sparse_gates(const at::Tensor& gate_TF, double cutoff) {
  const at::Tensor deviation_T1 = at::std(gate_TF, at::IntArrayRef{-1}, /*unbiased=*/false, /*keepdim=*/true);
  return at::relu(gate_TF - (gate_TF.mean(-1, true) + deviation_T1 * cutoff));
}

}  // namespace magister
