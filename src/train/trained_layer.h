// The two blocks of a layer with their norms, as autograd follows them: attention, and an MLP, experts or both.
// Legend: T packed tokens, D hidden.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <utility>

#include "magister/model/layer_shape.h"
#include "train/layer_weights.h"
#include "train/trained_attention.h"
#include "train/trained_norm.h"

namespace magister {

class TrainedLayer {
 public:
  // All are kept by reference. sparse: the layer has experts.
  TrainedLayer(const ModelConfig& config, const LayerWeights& weights, const LayerShape& shape, bool sparse)
      : config_(config), weights_(weights), shape_(shape), sparse_(sparse) {}

  // The stream after both blocks, from the stream before them; [T, D] each.
  at::Tensor output(const at::Tensor& input_TD, const AttentionInputs& inputs) const;

 private:
  using Names = TensorNames::Layer;
  // A block's normed input, and where GPU code finds these rows again.
  struct Rows {
    at::Tensor normed_TD;
    RowsFrom from;
  };
  // Called with the stream onto which the block's last product goes, or with an undefined tensor.
  using Block = std::function<at::Tensor(const at::Tensor& onto_TD)>;

  TrainedNorm input_norm(std::string Names::* weight, std::string Names::* bias) const;
  TrainedNorm output_norm(std::string Names::* weight) const;
  // Norms the stream for a block; a router reads rows in f32, because rounding could change its choice. Returns the
  // stream in addition, to which the block's output is added.
  std::pair<Rows, at::Tensor> normed(const TrainedNorm& norm, const at::Tensor& stream_TD, bool for_router) const;
  // The stream with a block's output, which the block's last product adds where it can.
  at::Tensor add(const at::Tensor& stream_TD, const TrainedNorm& norm, bool by_product, const Block& block) const;
  at::Tensor add_mlp(const at::Tensor& stream_TD, const Rows& rows) const;

  const ModelConfig& config_;
  const LayerWeights& weights_;
  const LayerShape& shape_;
  bool sparse_;
};

}  // namespace magister
