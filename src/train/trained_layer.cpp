// The order of a layer's blocks is that of model/cpu/decoder_layer.cpp.
#include "train/trained_layer.h"

#include <ATen/ATen.h>

#include <tuple>

#include "train/altup.h"
#include "train/trained_experts.h"
#include "train/trained_mlp.h"

namespace magister {

TrainedNorm TrainedLayer::input_norm(std::string Names::* weight, std::string Names::* bias) const {
  return {weights_.norm(weight), shape_.rms_norm_eps, config_.norm_kind == NormKind::kLayer, weights_(bias)};
}

TrainedNorm TrainedLayer::output_norm(std::string Names::* weight) const {
  return {weights_.norm(weight), shape_.rms_norm_eps};
}

std::pair<TrainedLayer::Rows, at::Tensor> TrainedLayer::normed(const TrainedNorm& norm, const at::Tensor& stream_TD,
                                                               bool for_router) const {
  auto [normed_TD, onto_TD] = norm.of_stream(stream_TD, weights_.mixed() && !for_router ? at::kBFloat16 : at::kFloat);
  const RowsFrom from = norm.rows_from(normed_TD, stream_TD);
  return {{normed_TD, from}, onto_TD};
}

at::Tensor TrainedLayer::add(const at::Tensor& stream_TD, const TrainedNorm& norm, bool by_product,
                             const Block& block) const {
  if (by_product && weights_.mixed() && !norm.weight.defined()) return block(stream_TD);
  return stream_TD + norm(block(at::Tensor()));
}

at::Tensor TrainedLayer::add_mlp(const at::Tensor& stream_TD, const Rows& rows) const {
  return add(stream_TD, output_norm(&Names::mlp_output_norm), !sparse_, [&](const at::Tensor& onto_TD) {
    if (!sparse_) return feed_forward(rows.normed_TD, rows.from, weights_, shape_, onto_TD);
    if (!config_.dense_beside_experts) return mixture_of_experts(rows.normed_TD, rows.normed_TD, weights_, shape_);
    const at::Tensor dense_TD = feed_forward(rows.normed_TD, rows.from, weights_, shape_, at::Tensor());
    return output_norm(&Names::dense_output_norm)(dense_TD) + experts_beside(stream_TD, weights_, shape_);
  });
}

at::Tensor TrainedLayer::output(const at::Tensor& input_TD, const AttentionInputs& inputs) const {
  const bool shares_norm = config_.parallel_residual && !config_.parallel_norms;
  auto [rows, hidden_TD] = normed(input_norm(&Names::attention_input_norm, &Names::attention_input_norm_bias), input_TD,
                                  sparse_ && shares_norm);
  hidden_TD =
      add(hidden_TD, output_norm(&Names::attention_output_norm), true, [&, &rows = rows](const at::Tensor& onto_TD) {
        return weights_.linear_onto(onto_TD, attention_heads(rows.normed_TD, rows.from, weights_, shape_, inputs),
                                    &Names::o_proj, &Names::o_bias);
      });
  if (config_.laurel_rank > 0) hidden_TD = with_laurel(hidden_TD, rows.normed_TD, weights_, shape_);
  const TrainedNorm mlp_norm = input_norm(&Names::mlp_input_norm, &Names::mlp_input_norm_bias);
  if (config_.parallel_norms) {
    rows = {mlp_norm(input_TD), {}};
  } else if (!config_.parallel_residual) {
    std::tie(rows, hidden_TD) = normed(mlp_norm, hidden_TD, sparse_);
  }
  return add_mlp(hidden_TD, rows);
}

}  // namespace magister
