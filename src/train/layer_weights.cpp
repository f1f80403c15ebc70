// See layer_weights.h.
#include "train/layer_weights.h"

#include <ATen/ATen.h>

#include <map>

#include "magister/core/error.h"
#include "train/gpu_ops.h"
#include "train/trained_linear.h"

namespace magister {

LayerWeights::LayerWeights(const ParameterLayout& layout, std::size_t layer, const std::vector<at::Tensor>& leaves,
                           const LoraLayout* lora, const std::vector<at::Tensor>& factors, bool bf16)
    : config_(layout.description().config),
      layer_(layout.layers()[layer]),
      leaves_(leaves),
      factors_(leaves.size()),
      by_expert_(leaves.size()),
      transposed_(layout.description().names.transposed_products),
      in_turn_(config_.fused_qkv_by_head || config_.fused_qkv_by_quarter),
      bf16_(bf16) {
  for (std::size_t i = 0; i < factors.size() / 2; ++i)
    factors_[lora->pairs(layer)[i].parameter] = {factors[2 * i], factors[2 * i + 1]};
  if (lora != nullptr) scale_ = lora->scale();
  for (std::size_t row = 0; row < layer_.table.size(); ++row) {
    const std::size_t holder = layer_.holder[row];
    const std::int64_t expert = layer_.table[row].expert;
    if (expert >= 0 && expert < config_.num_experts && !layer_.table[row].stored.empty() && by_expert_[holder].empty())
      by_expert_[holder] = leaves_[holder].unbind(0);
  }
}

std::size_t LayerWeights::row_of(Name name) const {
  std::size_t row = 0;
  while (row < layer_.table.size() && layer_.table[row].name != name) ++row;
  return row;
}

at::Tensor LayerWeights::operator()(Name name) const {
  if (name == nullptr) return {};
  const std::size_t row = row_of(name);
  return row < layer_.table.size() ? leaves_[layer_.holder[row]] : at::Tensor();
}

at::Tensor LayerWeights::norm(Name name) const {
  const at::Tensor weight = (*this)(name);
  const bool on_input =
      name == &TensorNames::Layer::attention_input_norm || name == &TensorNames::Layer::mlp_input_norm;
  if (on_input && config_.weightless_norms) return at::ones({config_.hidden_size}, leaves_.front().options());
  return weight.defined() && config_.norm_weights_plus_one ? weight + 1.0 : weight;
}

at::Tensor LayerWeights::product(const at::Tensor& x_TK, std::size_t row, const at::Tensor& bias_N) const {
  const std::size_t holder = layer_.holder[row];
  const at::Tensor out_TN = trained_linear(x_TK, leaves_[holder], bias_N, transposed_, bf16_);
  const auto& [a_RK, b_NR] = factors_[holder];
  return a_RK.defined() ? out_TN + at::linear(at::linear(x_TK, a_RK), b_NR) * scale_ : out_TN;
}

bool LayerWeights::mixed() const { return bf16_ && GpuCodeScope::is_on(); }

GpuWeight LayerWeights::gpu_weight(Name weight, Name bias) const {
  const std::size_t holder = layer_.holder[row_of(weight)];
  return {leaves_[holder], (*this)(bias), factors_[holder].first, factors_[holder].second};
}

GpuLinearOptions LayerWeights::gpu_options(at::ScalarType to) const { return {true, transposed_, to, scale_}; }

at::Tensor LayerWeights::linear_onto(const at::Tensor& onto_TN, const at::Tensor& x_TK, Name weight, Name bias,
                                     const RowsFrom& from) const {
  if (!onto_TN.defined() && from.kind == RowsFrom::kThemselves) return linear(x_TK, weight, bias);
  return gpu_linear(x_TK, {gpu_weight(weight, bias)}, gpu_options(at::kFloat), onto_TN, from);
}

at::Tensor LayerWeights::side_by_side(const at::Tensor& x_TK, std::initializer_list<std::pair<Name, Name>> weights,
                                      const RowsFrom& from) const {
  const std::size_t first = row_of(weights.begin()->first);
  const bool is_one = !layer_.table[first].stored.empty();
  if (is_one && in_turn_ && layer_.table[first].product == FusedProduct::kQkv) return {};
  std::vector<GpuWeight> all;
  for (const auto& [weight, bias] : weights) {
    if (all.empty() || !is_one) all.push_back(gpu_weight(weight, bias));
  }
  return gpu_linear(x_TK, all, gpu_options(at::kBFloat16), {}, from);
}

at::Tensor LayerWeights::part_of(const at::Tensor& out_TN, std::size_t row) const {
  const LayerParameter& part = layer_.table[row];
  if (part.stored.empty()) return out_TN;
  if (part.group_rows == 0) return out_TN.narrow(1, part.first_row, part.shape.front()).contiguous();
  return out_TN.view({out_TN.size(0), -1, part.group_step})
      .narrow(2, part.first_row, part.group_rows)
      .flatten(1)
      .contiguous();  // flatten() of a single group is a view
}

at::Tensor LayerWeights::linear(const at::Tensor& x_TK, Name weight, Name bias) const {
  if (mixed()) return gpu_linear(x_TK, {gpu_weight(weight, bias)}, gpu_options(at::kFloat));
  const std::size_t row = row_of(weight);
  const at::Tensor out_TN = product(x_TK, row, (*this)(bias));
  return layer_.table[row].group_rows > 0 ? part_of(out_TN, row) : out_TN;
}

std::vector<at::Tensor> LayerWeights::linear(const at::Tensor& x_TK,
                                             std::initializer_list<std::pair<Name, Name>> weights,
                                             const RowsFrom& from) const {
  std::vector<at::Tensor> all;
  const std::size_t first = row_of(weights.begin()->first);
  const bool is_one = !layer_.table[first].stored.empty();
  if (config_.delta) {  // some of them are in one tensor
    std::map<std::size_t, at::Tensor> products;
    for (const auto& [weight, bias] : weights) {
      const std::size_t row = row_of(weight);
      at::Tensor& out_TN = products[layer_.holder[row]];
      if (!out_TN.defined()) out_TN = product(x_TK, row, (*this)(bias));
      all.push_back(part_of(out_TN, row));
    }
    return all;
  }
  if (!is_one && !mixed()) {
    for (const auto& [weight, bias] : weights) all.push_back(linear(x_TK, weight, bias));
    return all;
  }
  at::Tensor out_TN = mixed() ? side_by_side(x_TK, weights, from) : at::Tensor();
  if (!out_TN.defined()) out_TN = linear(x_TK, weights.begin()->first, weights.begin()->second);
  if (is_one && config_.fused_qkv_by_quarter && layer_.table[first].product == FusedProduct::kQkv) {
    const std::vector<at::Tensor> parts = out_TN.view({out_TN.size(0), 4, 3, -1}).unbind(2);  // queries, values, keys
    for (const std::size_t part : {0, 2, 1}) all.push_back(parts[part].flatten(1).contiguous());
    return all;
  }
  if (is_one && config_.fused_qkv_by_head && layer_.table[first].product == FusedProduct::kQkv) {
    // In turn the query heads of a KV head, its keys and its values.
    const std::int64_t group = config_.num_attention_heads / config_.num_key_value_heads;
    for (const at::Tensor& part :
         out_TN.view({out_TN.size(0), -1, group + 2, config_.head_dim}).split_with_sizes({group, 1, 1}, 2))
      all.push_back(part.flatten(1).contiguous());  // flatten() of a single KV head is a view
    return all;
  }
  std::vector<std::int64_t> widths;
  for (const auto& [weight, bias] : weights) widths.push_back(layer_.table[row_of(weight)].shape.front());
  for (const at::Tensor& part : out_TN.split_with_sizes(widths, 1))
    all.push_back(part.to(at::kFloat, false, false, at::MemoryFormat::Contiguous).contiguous());
  return all;
}

at::Tensor LayerWeights::router(const at::Tensor& x_TK) const {
  const at::Tensor out_TX = trained_linear(x_TK, (*this)(&TensorNames::Layer::router),
                                           (*this)(&TensorNames::Layer::router_bias), false, false);
  const at::Tensor gate = (*this)(&TensorNames::Layer::shared_expert_gate);
  return gate.defined() ? at::cat({out_TX, trained_linear(x_TK, gate, {}, false, false)}, 1) : out_TX;
}

at::Tensor LayerWeights::of_expert(std::string TensorNames::Layer::Expert::* name, std::int64_t expert) const {
  for (std::size_t row = 0; row < layer_.table.size(); ++row) {
    if (layer_.table[row].expert != expert || layer_.table[row].expert_name != name) continue;
    if (expert >= config_.num_experts) {  // columns of one MLP
      const LayerParameter& part = layer_.table[row];
      return leaves_[layer_.holder[row]]
          .narrow(0, part.first_row, part.shape[0])
          .narrow(1, part.first_column, part.shape[1])
          .contiguous();
    }
    const std::vector<at::Tensor>& parts = by_expert_[layer_.holder[row]];
    return parts.empty() ? leaves_[layer_.holder[row]] : parts[static_cast<std::size_t>(expert)];
  }
  return {};
}

std::pair<at::Tensor, at::Tensor> LayerWeights::expert_gate_up(const at::Tensor& x_NK, std::int64_t expert) const {
  using Expert = TensorNames::Layer::Expert;
  const at::Tensor gate = of_expert(&Expert::gate_proj, expert), gate_bias = of_expert(&Expert::gate_bias, expert);
  const bool routed = expert < config_.num_experts, fused = config_.fused_experts && routed;
  const at::Tensor out = trained_linear(x_NK, gate, gate_bias, fused, bf16_);
  if (routed &&
      ((config_.stacked_experts && config_.fused_gate_up_proj) || (fused && config_.fused_experts_in_halves))) {
    const std::vector<at::Tensor> halves = out.chunk(2, 1);
    return {halves[0].contiguous(), halves[1].contiguous()};
  }
  if (fused) {  // columns of gate and up alternate
    const std::vector<at::Tensor> halves = out.view({out.size(0), -1, 2}).unbind(2);
    return {halves[0].contiguous(), halves[1].contiguous()};
  }
  return {out,
          trained_linear(x_NK, of_expert(&Expert::up_proj, expert), of_expert(&Expert::up_bias, expert), false, bf16_)};
}

at::Tensor LayerWeights::expert_down(const at::Tensor& x_NK, std::int64_t expert) const {
  using Expert = TensorNames::Layer::Expert;
  return trained_linear(x_NK, of_expert(&Expert::down_proj, expert), of_expert(&Expert::down_bias, expert),
                        config_.fused_experts && expert < config_.num_experts, bf16_);
}

}  // namespace magister
