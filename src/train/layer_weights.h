// The weights of one layer in a pass, by their names in the parameter table, and the products with them, which autograd
// follows. A tensor that the file fuses (q, k and v of Phi-3, GPT-2 and GPT-NeoX) is multiplied as one: its gradient is
// made whole, and the outputs are divided.
// Legend: T rows of a packed batch, K inputs, N outputs, R rank of an adapter.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "magister/train/lora.h"
#include "magister/train/parameters.h"
#include "train/gpu_products.h"

namespace magister {

class LayerWeights {
 public:
  using Name = std::string TensorNames::Layer::*;

  // leaves: of the layer's parameters, in their order. lora: nullptr, or the adapter whose leaves `factors` are. The
  // layout is kept by reference.
  LayerWeights(const ParameterLayout& layout, std::size_t layer, const std::vector<at::Tensor>& leaves,
               const LoraLayout* lora, const std::vector<at::Tensor>& factors, bool bf16);

  // The weight as the file has it; undefined: the model has none.
  at::Tensor operator()(Name name) const;
  // True if the gate of attention's outputs is a part of the tensor that holds the queries' weight.
  bool gate_is_beside_queries() const { return config_.gate_beside_queries; }
  // The weight of a norm, as it multiplies.
  at::Tensor norm(Name name) const;
  at::Tensor linear(const at::Tensor& x_TK, Name weight, Name bias) const;
  // Reports whether this is a GPU pass in bf16: products then take bf16, and return it if the next operation takes it.
  bool mixed() const;
  // Returns the product on top of `onto`, both f32. Only such a pass has an `onto`, or rows from elsewhere; undefined:
  // the product alone.
  at::Tensor linear_onto(const at::Tensor& onto_TN, const at::Tensor& x_TK, Name weight, Name bias,
                         const RowsFrom& from = {}) const;
  // In such a pass: returns the outputs of several weights side by side in bf16, in the given order; undefined if the
  // file has them head by head.
  at::Tensor side_by_side(const at::Tensor& x_TK, std::initializer_list<std::pair<Name, Name>> weights,
                          const RowsFrom& from = {}) const;
  // Returns [T, N] of each of several weights, which the file may hold as one, f32, contiguous. {weight, bias}, in the
  // table's order.
  std::vector<at::Tensor> linear(const at::Tensor& x_TK, std::initializer_list<std::pair<Name, Name>> weights,
                                 const RowsFrom& from = {}) const;
  // For a mixture of experts: [T, L], see RouterRule. The router's product is f32 in any precision, because rounding
  // could change its choice.
  at::Tensor router(const at::Tensor& x_TK) const;
  // Gate and up of an expert for its own rows, contiguous.
  std::pair<at::Tensor, at::Tensor> expert_gate_up(const at::Tensor& x_NK, std::int64_t expert) const;
  at::Tensor expert_down(const at::Tensor& x_NK, std::int64_t expert) const;

 private:
  std::size_t row_of(Name name) const;
  // An expert's part of the tensor that holds it.
  at::Tensor of_expert(std::string TensorNames::Layer::Expert::* name, std::int64_t expert) const;
  // The outputs of this row's weight out of those of the whole tensor that holds it.
  at::Tensor part_of(const at::Tensor& out_TN, std::size_t row) const;
  // The product with the whole tensor that holds the row.
  at::Tensor product(const at::Tensor& x_TK, std::size_t row, const at::Tensor& bias_N) const;
  GpuWeight gpu_weight(Name weight, Name bias) const;
  GpuLinearOptions gpu_options(at::ScalarType to) const;

  const ModelConfig& config_;
  const ParameterLayout::Layer& layer_;
  const std::vector<at::Tensor>& leaves_;
  std::vector<std::pair<at::Tensor, at::Tensor>> factors_;  // by leaf: A [R, K], B [N, R]; undefined: none
  // By leaf: each expert's part of a tensor of all experts, so that their gradients are joined once. Empty for other
  // leaves.
  std::vector<std::vector<at::Tensor>> by_expert_;
  float scale_ = 1;
  bool transposed_, in_turn_, bf16_;  // in_turn_: one tensor has q, k and v of a part of the heads after another
};

}  // namespace magister
