// The formulas of plain_attention.h, a block of queries at a time, on the device.
#include "model/gpu/score_blocks.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "magister/device/upload.h"
#include "magister/model/plain_attention.h"

namespace magister::gpu {
namespace {

// [H, queries, keys] f32: alibi_term() of the keys from `first` on, for the last of them as queries.
at::Tensor block_terms(std::int64_t queries, std::int64_t first, std::int64_t keys, const LayerShape& shape,
                       const at::Tensor& alibi_H) {
  at::Tensor at_HK = at::arange(first, first + keys, alibi_H.options()).unsqueeze(0);
  const at::Tensor slope_H1 = alibi_H.unsqueeze(1);
  if (shape.alibi_in_bf16) at_HK = (slope_H1.to(at::kBFloat16) * at_HK.to(at::kBFloat16)).to(at::kFloat);
  const at::Tensor apart_HQK = at_HK.unsqueeze(1) - at_HK.narrow(1, keys - queries, queries).unsqueeze(2);
  return shape.alibi_in_bf16 ? apart_HQK * shape.attention_scale : slope_H1.unsqueeze(2) * apart_HQK;
}

// Sums of values, weighted by the softmax over the scores and the head's sink. Overwrites the scores.
at::Tensor weighted(at::Tensor& scores_HQK, const at::Tensor& v_HKV, const at::Tensor& sinks_H) {
  if (!sinks_H.defined()) return at::matmul(at::softmax(scores_HQK, -1), v_HKV);
  const at::Tensor sink_H11 = sinks_H.to(at::kDouble).view({-1, 1, 1}),
                   most_HQ1 = at::maximum(scores_HQK.amax(-1, true), sink_H11);
  scores_HQK.sub_(most_HQ1).exp_();
  return at::matmul(scores_HQK, v_HKV).div_(scores_HQK.sum(-1, true) + (sink_H11 - most_HQ1).exp());
}

}  // namespace

ScoreTerms score_terms(const LayerShape& shape, const at::Tensor& sinks_H, at::Device device) {
  ScoreTerms terms;
  if (sinks_H.defined()) terms.sinks_H = sinks_H.to(device);
  if (!shape.alibi_slopes.empty()) terms.alibi_H = upload(at::tensor(shape.alibi_slopes, at::kFloat), device);
  return terms;
}

bool needs_score_blocks(const LayerShape& shape, bool has_sinks) {
  return shape.attention_softcap > 0 || !shape.has_usual_scores() || has_sinks;
}

at::Tensor attend_in_blocks(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const LayerShape& shape,
                            const ScoreTerms& terms) {
  const auto heads_first = [](const at::Tensor& x) { return x.to(at::kDouble).transpose(0, 1); };
  const at::Tensor q_HQE = heads_first(q), k_HEK = heads_first(k).transpose(1, 2), v_HKV = heads_first(v);
  std::vector<at::Tensor> outputs;
  for (std::int64_t begin = 0; begin < q.size(0); begin += kCappedQueries) {
    const std::int64_t rows = std::min(kCappedQueries, q.size(0) - begin), position = k.size(0) - q.size(0) + begin,
                       first = first_visible_key(shape, position), keys = position + rows - first;
    at::Tensor scores =
        at::matmul(q_HQE.narrow(1, begin, rows), k_HEK.narrow(2, first, keys)).mul_(shape.attention_scale);
    if (shape.attention_softcap > 0) scores.div_(shape.attention_softcap).tanh_().mul_(shape.attention_softcap);
    if (terms.alibi_H.defined()) scores.add_(block_terms(rows, first, keys, shape, terms.alibi_H));
    // Windows in chunks begin at multiples of the window, and so does `first`.
    scores.masked_fill_(visible_keys(rows, keys, shape, q.device()).logical_not(),
                        -std::numeric_limits<double>::infinity());
    outputs.push_back(weighted(scores, v_HKV.narrow(1, first, keys), terms.sinks_H));
  }
  return at::cat(outputs, 1).transpose(0, 1).to(q.scalar_type());
}

}  // namespace magister::gpu
