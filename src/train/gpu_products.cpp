// See gpu_products.h.
#include "train/gpu_products.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "magister/core/error.h"
#include "train/gpu_ops.h"

namespace magister {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

at::Tensor operand(const at::Tensor& x, bool bf16) { return bf16 ? x.to(at::kBFloat16) : x; }

at::Tensor multiplied(const at::Tensor& left_MK, const at::Tensor& right_KN, at::ScalarType to) {
  if (left_MK.scalar_type() == at::kFloat) return at::mm(left_MK, right_KN).to(to);
  // ATen's CPU code would round the sums.
  if (left_MK.is_cpu()) return at::mm(left_MK.to(at::kFloat), right_KN.to(at::kFloat)).to(to);
  return to == at::kBFloat16 ? at::mm(left_MK, right_KN) : at::mm(left_MK, right_KN, at::kFloat);
}

// The tensors that go through autograd as one list: for every weight the weight itself, its bias and its adapter, if
// present.
struct WeightList {
  static constexpr std::int64_t kBias = 1, kAdapter = 2;
  std::vector<std::int64_t> has;
  std::vector<at::Tensor> all;

  void append(const GpuWeight& weight) {
    has.push_back((weight.bias_N.defined() ? kBias : 0) | (weight.a_RK.defined() ? kAdapter : 0));
    all.push_back(weight.weight);
    if (weight.bias_N.defined()) all.push_back(weight.bias_N);
    if (weight.a_RK.defined()) all.insert(all.end(), {weight.a_RK, weight.b_NR});
  }
  // The position of each of them in the list.
  struct Places {
    std::size_t weight = 0, bias = 0, a = 0;  // 0: not present
  };
  static std::vector<std::pair<GpuWeight, Places>> apart(at::ArrayRef<std::int64_t> has, at::TensorList all) {
    std::vector<std::pair<GpuWeight, Places>> weights;
    std::size_t at = 0;
    for (const std::int64_t one : has) {
      Places places{at++, 0, 0};
      if ((one & kBias) != 0) places.bias = at++;
      if ((one & kAdapter) != 0) places.a = std::exchange(at, at + 2);
      const auto tensor = [&](std::size_t place) { return place > 0 ? all[place] : at::Tensor(); };
      weights.push_back(
          {{all[places.weight], tensor(places.bias), tensor(places.a), places.a > 0 ? all[places.a + 1] : at::Tensor()},
           places});
    }
    return weights;
  }
};
using Weights = std::vector<std::pair<GpuWeight, WeightList::Places>>;

std::int64_t outputs_of(const at::Tensor& weight, bool inputs_first) { return weight.size(inputs_first ? 1 : 0); }

// All weights as one [N, K], rounded.
at::Tensor stacked_operand(const Weights& weights, bool inputs_first) {
  const auto as_rows = [&](const at::Tensor& weight) { return inputs_first ? weight.t() : weight; };
  if (weights.size() == 1) return as_rows(weights[0].first.weight.to(at::kBFloat16));
  std::int64_t N = 0;
  for (const auto& [weight, places] : weights) N += outputs_of(weight.weight, inputs_first);
  const at::Tensor first = as_rows(weights[0].first.weight);
  at::Tensor all_NK = at::empty({N, first.size(1)}, first.options().dtype(at::kBFloat16));
  std::int64_t begin = 0;
  for (const auto& [weight, places] : weights) {
    const at::Tensor rows = as_rows(weight.weight);
    all_NK.narrow(0, begin, rows.size(0)).copy_(rows);
    begin += rows.size(0);
  }
  return all_NK;
}

class GpuBf16Linear : public Function<GpuBf16Linear> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_TK, const std::optional<at::Tensor>& onto_TN,
                            at::TensorList list, const std::vector<std::int64_t>& has, bool inputs_first, bool to_bf16,
                            double scale, const RowsFrom& from) {
    const at::Tensor x = from.kind == RowsFrom::kGate ? gate_forward(x_TK, from.activation) : operand(x_TK, true);
    const Weights weights = WeightList::apart(has, list);
    const at::Tensor all_KN = stacked_operand(weights, inputs_first).t();
    at::Tensor out_TN;
    if (onto_TN) {
      out_TN = x.is_cpu() ? *onto_TN + multiplied(x, all_KN, at::kFloat) : at::addmm(*onto_TN, x, all_KN, at::kFloat);
    } else {
      out_TN = multiplied(x, all_KN, to_bf16 ? at::kBFloat16 : at::kFloat);
    }
    variable_list saved = {from.kind == RowsFrom::kNorm   ? from.stream_TK
                           : from.kind == RowsFrom::kGate ? x_TK
                                                          : x,
                           from.weight_K};
    context->saved_data["kind"] = static_cast<std::int64_t>(from.kind);
    context->saved_data["activation"] = static_cast<std::int64_t>(from.activation);
    context->saved_data["eps"] = from.eps;
    saved.insert(saved.end(), list.begin(), list.end());
    std::int64_t begin = 0;
    for (const auto& [weight, places] : weights) {
      const std::int64_t N = outputs_of(weight.weight, inputs_first);
      at::Tensor part_TN = out_TN.narrow(1, std::exchange(begin, begin + N), N);
      if (weight.bias_N.defined()) part_TN.add_(weight.bias_N);
      if (!weight.a_RK.defined()) continue;
      saved.push_back(multiplied(x, operand(weight.a_RK, true).t(), at::kBFloat16));
      gpu_add_product(saved.back(), scaled(weight.b_NR, scale).t(), part_TN);
    }
    context->save_for_backward(saved);
    context->saved_data["has"] = has;
    context->saved_data["inputs_first"] = inputs_first;
    context->saved_data["scale"] = scale;
    context->saved_data["x_bf16"] = x_TK.scalar_type() == at::kBFloat16;
    context->saved_data["onto"] = onto_TN.has_value();
    return out_TN;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const std::vector<std::int64_t> has = context->saved_data["has"].toIntVector();
    const bool inputs_first = context->saved_data["inputs_first"].toBool(), onto = context->saved_data["onto"].toBool();
    const double scale = context->saved_data["scale"].toDouble();
    const at::ScalarType x_type = context->saved_data["x_bf16"].toBool() ? at::kBFloat16 : at::kFloat;
    const at::Tensor gradient_TN = operand(gradients[0], true).contiguous();
    const Weights weights = WeightList::apart(has, at::TensorList(saved).slice(2));
    // Edges of the graph: x, the tensor that was added to, the list. The results have an entry for every argument.
    const std::size_t first_edge = onto ? 2 : 1;
    std::size_t num_listed = 0, mid = saved.size();
    for (const auto& [weight, places] : weights) {
      num_listed += 1 + (places.bias > 0 ? 1 : 0) + (places.a > 0 ? 2 : 0);
      mid -= places.a > 0 ? 1 : 0;
    }
    variable_list out(2 + num_listed + 5);
    if (onto) out[1] = gradients[0];
    if (context->needs_input_grad(0)) out[0] = multiplied(gradient_TN, stacked_operand(weights, inputs_first), x_type);
    bool any_weight = false, any_adapter = false;
    for (const auto& [weight, places] : weights) {
      any_weight = any_weight || context->needs_input_grad(first_edge + places.weight);
      any_adapter = any_adapter || places.a > 0;
    }
    const at::Tensor x = any_weight || any_adapter ? rows_again(context, saved) : at::Tensor();
    at::Tensor of_weights;
    if (any_weight)
      of_weights =
          inputs_first ? multiplied(x.t(), gradient_TN, at::kFloat) : multiplied(gradient_TN.t(), x, at::kFloat);
    std::int64_t begin = 0;
    for (const auto& [weight, places] : weights) {
      const std::int64_t N = outputs_of(weight.weight, inputs_first), at = std::exchange(begin, begin + N);
      const at::Tensor part_TN = gradient_TN.narrow(1, at, N);
      if (context->needs_input_grad(first_edge + places.weight))
        out[2 + places.weight] = of_weights.narrow(inputs_first ? 1 : 0, at, N);
      if (places.bias > 0 && context->needs_input_grad(first_edge + places.bias))
        out[2 + places.bias] = gradients[0].narrow(1, at, N).sum(0, false, at::kFloat);
      if (places.a == 0) continue;
      const at::Tensor of_mid_TR = multiplied(part_TN, scaled(weight.b_NR, scale), at::kBFloat16);
      out[2 + places.a] = multiplied(of_mid_TR.t(), x, at::kFloat);
      out[3 + places.a] = multiplied(part_TN.t(), saved[mid++], at::kFloat).mul_(scale);
      if (out[0].defined()) gpu_add_product(of_mid_TR, operand(weight.a_RK, true), out[0]);
    }
    if (out[0].defined() && context->saved_data["kind"].toInt() == RowsFrom::kGate)
      out[0] = gate_backward(out[0], saved[0], static_cast<Activation>(context->saved_data["activation"].toInt()));
    return out;
  }

 private:
  static at::Tensor rows_again(AutogradContext* context, const variable_list& saved) {
    const std::int64_t kind = context->saved_data["kind"].toInt();
    if (kind == RowsFrom::kGate)
      return gate_forward(saved[0], static_cast<Activation>(context->saved_data["activation"].toInt()));
    if (kind == RowsFrom::kThemselves) return saved[0];
    return norm_forward(saved[0], saved[1], context->saved_data["eps"].toDouble());
  }
  static at::Tensor scaled(const at::Tensor& b_NR, double scale) { return (b_NR * scale).to(at::kBFloat16); }
};

class GpuF32Linear : public Function<GpuF32Linear> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_TK, const at::Tensor& weight_NK) {
    context->save_for_backward({x_TK, weight_NK});
    return at::mm(x_TK, weight_NK.t());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    variable_list out(2);
    if (context->needs_input_grad(0)) out[0] = at::mm(gradients[0], saved[1]);
    if (context->needs_input_grad(1)) out[1] = at::mm(gradients[0].t(), saved[0]);
    return out;
  }
};

}  // namespace

at::Tensor gpu_linear(const at::Tensor& x_TK, const std::vector<GpuWeight>& weights, const GpuLinearOptions& options,
                      const at::Tensor& onto_TN, const RowsFrom& from) {
  if (options.bf16) {
    WeightList list;
    for (const GpuWeight& weight : weights) list.append(weight);
    return GpuBf16Linear::apply(x_TK, onto_TN.defined() ? std::optional(onto_TN) : std::nullopt,
                                at::TensorList(list.all), list.has, options.inputs_first, options.to == at::kBFloat16,
                                options.adapter_scale, from);
  }
  MAGISTER_ASSERT(weights.size() == 1 && !weights[0].a_RK.defined() && !onto_TN.defined() &&
                  from.kind == RowsFrom::kThemselves);
  const at::Tensor out_TN = GpuF32Linear::apply(x_TK, options.inputs_first ? weights[0].weight.t() : weights[0].weight);
  return weights[0].bias_N.defined() ? out_TN + weights[0].bias_N : out_TN;
}

at::Tensor gpu_product(const at::Tensor& left_MK, const at::Tensor& right_KN, bool bf16) {
  return multiplied(operand(left_MK, bf16), operand(right_KN, bf16), at::kFloat);
}

void gpu_add_product(const at::Tensor& left_MK, const at::Tensor& right_KN, at::Tensor out_MN) {
  if (left_MK.is_cpu()) {
    out_MN.copy_(out_MN.to(at::kFloat).add_(multiplied(left_MK, right_KN, at::kFloat)));
  } else if (left_MK.scalar_type() == out_MN.scalar_type()) {
    out_MN.addmm_(left_MK, right_KN);
  } else {
    at::addmm_out(out_MN, out_MN, left_MK, right_KN, out_MN.scalar_type());
  }
}

void gpu_product_into(const at::Tensor& left_MK, const at::Tensor& right_KN, at::Tensor out_MN) {
  if (left_MK.is_cpu()) {
    out_MN.copy_(multiplied(left_MK, right_KN, out_MN.scalar_type()));
  } else if (left_MK.scalar_type() == out_MN.scalar_type()) {
    at::mm_out(out_MN, left_MK, right_KN);
  } else {
    at::mm_out(out_MN, left_MK, right_KN, out_MN.scalar_type());
  }
}

}  // namespace magister
