// Without GPU code attention runs one sequence at a time. The formulas are those of model/cpu/blocks_reference.cpp.
#include "train/sequence_attention.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "magister/model/plain_attention.h"
#include "train/alibi_columns.h"

namespace magister {
namespace {

// The mask of one sequence's scores: a bias [1, H, L, L], or for all heads [L, L] bool; nothing: they are causal alone.
std::optional<at::Tensor> score_mask(std::int64_t length, const LayerShape& shape, at::Device device,
                                     const at::Tensor& chosen_LL) {
  if (chosen_LL.defined()) return chosen_LL;
  const bool windowed = shape.sliding_window > 0 && length > shape.sliding_window;
  if (!windowed && shape.alibi_slopes.empty()) return std::nullopt;
  const at::Tensor visible_LL = visible_keys(length, length, shape, device);
  if (shape.alibi_slopes.empty()) return visible_LL;
  return alibi_terms(length, length, shape, device)
      .masked_fill(visible_LL.logical_not(), -std::numeric_limits<double>::infinity())
      .unsqueeze(0);
}

// One sequence; q, k, v: [L, H, E].
// sinks_H: scores of one additional key that every query sees and that has no value; undefined: none. chosen_LL: the
// keys that each query sees, [L, L] bool; undefined: as the shape says.
at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& sinks_H,
                  const LayerShape& shape, const at::Tensor& chosen_LL) {
  const std::int64_t length = q.size(0);
  const auto heads_first = [](const at::Tensor& x_LHE) { return x_LHE.transpose(0, 1).unsqueeze(0); };
  if (shape.attention_softcap == 0 && !sinks_H.defined()) {
    const std::optional<at::Tensor> mask = score_mask(length, shape, q.device(), chosen_LL);
    return at::scaled_dot_product_attention(heads_first(q), heads_first(k), heads_first(v), mask, 0.0, !mask,
                                            static_cast<double>(shape.attention_scale))
        .squeeze(0)
        .transpose(0, 1);
  }
  const double cap = shape.attention_softcap;
  at::Tensor scores = at::matmul(heads_first(q), heads_first(k).transpose(-1, -2)) * shape.attention_scale;
  if (cap > 0) scores = at::tanh(scores / cap) * cap;
  scores = scores.masked_fill(visible_keys(length, length, shape, q.device()).logical_not(),
                              -std::numeric_limits<double>::infinity());
  if (sinks_H.defined())
    scores = at::cat({scores, sinks_H.view({1, -1, 1, 1}).expand({1, scores.size(1), length, 1})}, -1);
  const at::Tensor shares = at::softmax(scores, -1).narrow(-1, 0, length);
  return at::matmul(shares, heads_first(v)).squeeze(0).transpose(0, 1);
}

// Appends zeros to heads.
at::Tensor padded(const at::Tensor& x_THE, std::int64_t width) {
  return x_THE.size(2) == width ? x_THE : at::constant_pad_nd(x_THE, {0, width - x_THE.size(2)});
}

at::Tensor attend_each(const at::Tensor& q_THE, const at::Tensor& k_TKE, const at::Tensor& v_TKV,
                       const at::Tensor& sinks_H, const LayerShape& shape, const std::vector<std::int64_t>& cu_seqlens,
                       const VisibleKeys& visible) {
  const std::int64_t width = std::max(q_THE.size(2), v_TKV.size(2));
  const at::Tensor q = padded(q_THE, width), k = for_all_heads(padded(k_TKE, width), shape.heads),
                   v = for_all_heads(padded(v_TKV, width), shape.heads);
  std::vector<at::Tensor> outputs;
  for (std::size_t s = 0; s + 1 < cu_seqlens.size(); ++s) {
    const std::int64_t begin = cu_seqlens[s], length = cu_seqlens[s + 1] - begin;
    outputs.push_back(attend(q.narrow(0, begin, length), k.narrow(0, begin, length), v.narrow(0, begin, length),
                             sinks_H, shape, visible.empty() ? at::Tensor() : visible[s]));
  }
  return outputs.size() == 1 ? outputs[0] : at::cat(outputs, 0);
}

}  // namespace

LayerShape kernel_shape(const LayerShape& shape, bool bf16) {
  LayerShape wide = shape;
  const bool has_alibi = !shape.alibi_slopes.empty();
  wide.head_dim = std::max(shape.head_dim + (has_alibi ? kAlibiColumns : 0), shape.value_dim());
  constexpr std::int64_t kFlash = 8;  // flash attention takes heads of multiples of it
  if (bf16) wide.head_dim = (wide.head_dim + kFlash - 1) / kFlash * kFlash;
  wide.own_value_dim = 0;
  wide.latent.reset();
  if (has_alibi) wide.kv_heads = shape.heads;
  wide.alibi_slopes.clear();
  if (shape.chunked_windows) wide.sliding_window = 0;
  wide.chunked_windows = false;
  return wide;
}

at::Tensor attend_sequences(const at::Tensor& q_THE, const at::Tensor& k_TKE, const at::Tensor& v_TKV,
                            const at::Tensor& sinks_H, const LayerShape& shape,
                            const std::vector<std::int64_t>& cu_seqlens, const SequencePlan* plan, bool bf16,
                            const VisibleKeys& visible) {
  const std::int64_t T = q_THE.size(0), H = shape.heads, V = v_TKV.size(2);
  const LayerShape wide = kernel_shape(shape, bf16);
  const bool flash = plan != nullptr && bf16 && flash_trains(wide);
  const bool chooses = std::any_of(visible.begin(), visible.end(), [](const at::Tensor& one) { return one.defined(); });
  if (plan == nullptr || shape.attention_softcap > 0 || chooses || (sinks_H.defined() && !flash))
    return attend_each(q_THE, k_TKE, v_TKV, sinks_H, shape, cu_seqlens, visible).narrow(2, 0, V).reshape({T, H * V});
  const auto type = flash ? at::kBFloat16 : at::kFloat;
  at::Tensor q = q_THE.to(type), k = k_TKE.to(type), v = v_TKV.to(type);
  if (!shape.alibi_slopes.empty()) {
    q = at::cat({q, at::ones({1, 1, kAlibiColumns}, q.options()).expand({T, H, kAlibiColumns})}, 2);
    k = at::cat({for_all_heads(k, H), plan->alibi_THC.to(type)}, 2);
    v = for_all_heads(v, H);
  }
  const std::int64_t width = wide.head_dim;
  q = padded(q, width);
  k = padded(k, width);
  v = padded(v, width);
  const at::Tensor out_THE =
      flash ? gpu_flash_attention(at::cat({q, k, v}, 1).view({T, -1}), *plan, wide, nullptr, false, {}, sinks_H)
                  .view({T, H, width})
            : gpu_plain_attention(q, k, v, plan->cu_seqlens, wide);
  return out_THE.narrow(2, 0, V).reshape({T, H * V});
}

}  // namespace magister
