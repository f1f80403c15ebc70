// The attention of gpu_attention.h in f32, by ATen's fused operation.
#include <ATen/ATen.h>

#include <map>

#include "train/gpu_attention.h"

namespace magister {
namespace {

at::Tensor keys_in_window(std::int64_t length, std::int64_t window, at::Device device) {
  const at::Tensor at = at::arange(length, at::TensorOptions(at::kLong).device(device)),
                   distance = at.unsqueeze(1) - at.unsqueeze(0);
  return (distance >= 0) & (distance < window);
}

// [S, L, H, E] each, sequences of one length.
at::Tensor attend_alike(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const LayerShape& shape) {
  const std::int64_t length = q.size(1), window = shape.sliding_window;
  const bool windowed = window > 0 && length > window;
  const std::optional<at::Tensor> mask =
      windowed ? std::optional(keys_in_window(length, window, q.device())) : std::nullopt;
  return at::scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), mask, 0.0, !windowed,
                                          static_cast<double>(shape.attention_scale))
      .transpose(1, 2);
}

}  // namespace

at::Tensor for_all_heads(const at::Tensor& x_TKE, std::int64_t heads) {
  const std::int64_t T = x_TKE.size(0), K = x_TKE.size(1), E = x_TKE.size(2);
  return heads == K ? x_TKE : x_TKE.unsqueeze(2).expand({T, K, heads / K, E}).reshape({T, heads, E});
}

at::Tensor gpu_plain_attention(const at::Tensor& q_THE, const at::Tensor& k_TKE, const at::Tensor& v_TKE,
                               const std::vector<std::int64_t>& cu_seqlens, const LayerShape& shape) {
  const std::int64_t T = q_THE.size(0), H = shape.heads, E = shape.head_dim;
  const at::Tensor k_THE = for_all_heads(k_TKE, H), v_THE = for_all_heads(v_TKE, H);
  std::map<std::int64_t, std::vector<std::size_t>> by_length;
  for (std::size_t s = 0; s + 1 < cu_seqlens.size(); ++s) by_length[cu_seqlens[s + 1] - cu_seqlens[s]].push_back(s);
  if (by_length.size() == 1) {
    const auto alike = [&](const at::Tensor& x) { return x.view({-1, by_length.begin()->first, H, E}); };
    return attend_alike(alike(q_THE.contiguous()), alike(k_THE.contiguous()), alike(v_THE.contiguous()), shape)
        .reshape({T, H, E});
  }
  std::vector<at::Tensor> outputs(cu_seqlens.size() - 1);
  for (const auto& [length, sequences] : by_length) {
    const auto of_these = [&, length = length, &sequences = sequences](const at::Tensor& x) {
      std::vector<at::Tensor> all;
      for (const std::size_t s : sequences) all.push_back(x.narrow(0, cu_seqlens[s], length));
      return all.size() == 1 ? all[0].unsqueeze(0) : at::stack(all);
    };
    const std::vector<at::Tensor> out =
        attend_alike(of_these(q_THE), of_these(k_THE), of_these(v_THE), shape).unbind(0);
    for (std::size_t i = 0; i < sequences.size(); ++i) outputs[sequences[i]] = out[i];
  }
  return at::cat(outputs, 0);
}

}  // namespace magister
