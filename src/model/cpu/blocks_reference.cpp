// The slow reference implementation of both blocks: whole batches, plain ATen, one sequence at a time, explicit masks.
// The start-up self-test and the unit tests compare with it, and autograd can follow it.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "magister/model/plain_activation.h"
#include "magister/model/plain_attention.h"
#include "model/cpu/decoder_layer.h"

namespace magister {
namespace {

at::Tensor plain_rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const at::Tensor wide = x.to(at::kFloat);
  return weight * (wide * at::rsqrt(wide.pow(2).mean(-1, true) + eps));
}

// Rotates the first `turning` dimensions of each head as halves: (a, b) -> (a cos - b sin, b cos + a sin).
at::Tensor plain_rope(const at::Tensor& x_THE, const at::Tensor& cos_TE2, const at::Tensor& sin_TE2,
                      std::int64_t turning) {
  if (turning == 0) return x_THE;
  const auto halves = x_THE.narrow(-1, 0, turning).chunk(2, -1);
  const at::Tensor cos = cos_TE2.unsqueeze(1), sin = sin_TE2.unsqueeze(1);
  return at::cat({halves[0] * cos - halves[1] * sin, halves[1] * cos + halves[0] * sin,
                  x_THE.narrow(-1, turning, x_THE.size(-1) - turning)},
                 -1);
}

// RMS norm over each head, or over all heads together if the weight is as wide as all of them. If all_heads > 0, the
// norm is over the heads of all shards; this shard adds its heads from `counted` on.
at::Tensor plain_qk_norm(const at::Tensor& x_THE, const at::Tensor& weight, double eps, std::int64_t all_heads,
                         std::int64_t counted, const std::function<void(at::Tensor&)>& sum) {
  if (all_heads > 0) {
    const at::Tensor x_TA = x_THE.to(at::kFloat).flatten(1);
    at::Tensor squares_T1 =
        x_TA.narrow(1, counted * x_THE.size(2), x_TA.size(1) - counted * x_THE.size(2)).square().sum(1, true);
    if (sum) sum(squares_T1);
    const at::Tensor mean_T1 = squares_T1 / static_cast<double>(all_heads * x_THE.size(2));
    return (x_TA * at::rsqrt(mean_T1 + eps) * weight).view(x_THE.sizes());
  }
  return plain_rms_norm(x_THE.reshape({x_THE.size(0), -1, weight.numel()}), weight, eps).view(x_THE.sizes());
}

at::Tensor query_scales(const LayerShape& shape, const at::Tensor& positions_T) {
  at::Tensor scales_T = at::empty(positions_T.sizes(), at::TensorOptions().dtype(at::kFloat));
  for (std::int64_t t = 0; t < positions_T.size(0); ++t)
    scales_T.data_ptr<float>()[t] = query_scale(shape, positions_T.const_data_ptr<std::int32_t>()[t]);
  return scales_T;
}

}  // namespace

// A block of panels at a time: the plain weight of a whole MLP would be the largest tensor of the program's start. The
// blocks' outputs have one tensor, since small tensors between large ones leave holes in the allocator.
at::Tensor plain_product(const at::Tensor& x_TK, const Linear& linear) {
  constexpr std::int64_t kBlockNumbers = 256 << 10;
  const std::int64_t N = linear.out_features(),
                     panels = std::max<std::int64_t>(1, kBlockNumbers / linear.in_features() / Linear::kPanel),
                     rows = linear.is_packed() ? panels * Linear::kPanel : N;
  at::Tensor out_TN = at::empty({x_TK.size(0), N}, x_TK.options().dtype(at::kFloat));
  for (std::int64_t first = 0; first < N; first += rows) {
    const std::int64_t last = std::min(first + rows, N);
    const at::Tensor weight_RK = linear.outputs(first, last).plain_weight();
    out_TN.slice(1, first, last).copy_(at::mm(x_TK.to(weight_RK.scalar_type()), weight_RK.t()));
  }
  return linear.bias_N.defined() ? out_TN + linear.bias_N : out_TN;
}

at::Tensor plain_input(const BlockNorms& norms, const at::Tensor& hidden_TD, double eps) {
  if (!norms.input_D.defined()) return hidden_TD;
  const at::Tensor normed_TD =
      plain_rms_norm(norms.centred ? hidden_TD - hidden_TD.mean(-1, true) : hidden_TD, norms.input_D, eps);
  return norms.input_bias_D.defined() ? normed_TD + norms.input_bias_D : normed_TD;
}

at::Tensor reference_block_output(const BlockNorms& norms, const at::Tensor& out_TD, double eps) {
  return norms.output_D.defined() ? plain_rms_norm(out_TD, norms.output_D, eps) : out_TD;
}

at::Tensor soft_capped(const at::Tensor& numbers, double cap) {
  return cap > 0 ? at::tanh(numbers / cap) * cap : numbers;
}

namespace {

// [T, H, E] of queries and of each query's keys and values, which may have another size -> [T, H, E of the values].
// visible_LL: see KeysAndValues; empty: there is no indexer.
at::Tensor plain_attention(const at::Tensor& q_THE, const at::Tensor& k_THE, const at::Tensor& v_THE,
                           const at::Tensor& sinks_H, const LayerShape& shape, const PackedBatch& batch,
                           const std::vector<at::Tensor>& visible_LL = {}) {
  std::vector<at::Tensor> outputs;
  for (std::int64_t s = 0; s < batch.num_sequences(); ++s) {
    const std::int64_t begin = batch.cu_seqlens[s], length = batch.cu_seqlens[s + 1] - begin;
    const auto of = [&](const at::Tensor& x_THE) { return x_THE.narrow(0, begin, length).transpose(0, 1); };
    at::Tensor scores_HLL =
        soft_capped(at::matmul(of(q_THE), of(k_THE).transpose(1, 2)) * shape.attention_scale, shape.attention_softcap);
    if (!shape.alibi_slopes.empty()) scores_HLL = scores_HLL + alibi_terms(length, length, shape, scores_HLL.device());
    const at::Tensor chosen_LL = visible_LL.empty() ? at::Tensor() : visible_LL[static_cast<std::size_t>(s)];
    scores_HLL = scores_HLL.masked_fill(
        (chosen_LL.defined() ? chosen_LL : visible_keys(length, length, shape, scores_HLL.device())).logical_not(),
        -std::numeric_limits<double>::infinity());
    if (sinks_H.defined())  // one more key, which every query sees and which has no value
      scores_HLL = at::cat({scores_HLL, sinks_H.view({-1, 1, 1}).expand({q_THE.size(1), length, 1})}, -1);
    const at::Tensor shares_HLL = at::softmax(scores_HLL, -1).narrow(-1, 0, length);
    outputs.push_back(at::matmul(shares_HLL, of(v_THE)).transpose(0, 1));
  }
  return at::cat(outputs, 0);
}

}  // namespace

at::Tensor Attention::reference(const at::Tensor& hidden_TD, const PackedBatch& batch, const at::Tensor& cos_TE2,
                                const at::Tensor& sin_TE2, const std::function<void(at::Tensor&)>& sum,
                                KeysAndValues* kv) const {
  if (weights_.delta) return delta_reference(hidden_TD, batch);
  if (weights_.latent) return latent_reference(hidden_TD, batch, cos_TE2, sin_TE2, kv);
  const std::int64_t E = shape_.head_dim, V = shape_.value_dim(), H = shape_.heads, K = shape_.own_kv_heads(),
                     values = shape_.keys_are_values ? 0 : K;
  const at::Tensor input_TD = plain_input(weights_.norms, hidden_TD, shape_.rms_norm_eps);
  const auto parts = plain_product(input_TD, weights_.qkv_proj).split_with_sizes({H * E, K * E, values * V}, 1);
  at::Tensor q_THE = parts[0].unflatten(1, {H, E}), k_TKE = parts[1].unflatten(1, {K, E});
  at::Tensor v_TKE = shape_.keys_are_values ? k_TKE : parts[2].unflatten(1, {values, V});
  const auto norm = [&] {
    if (!weights_.q_norm.defined()) return;
    if (weights_.q_norm_bias.defined()) {
      q_THE = head_layer_norm(q_THE, weights_.q_norm, weights_.q_norm_bias, shape_.rms_norm_eps);
      k_TKE = head_layer_norm(k_TKE, weights_.k_norm, weights_.k_norm_bias, shape_.rms_norm_eps);
      return;
    }
    q_THE = plain_qk_norm(q_THE, weights_.q_norm, shape_.rms_norm_eps, shape_.all_heads, 0, sum);
    if (K == 0) return;
    k_TKE =
        plain_qk_norm(k_TKE, weights_.k_norm, shape_.rms_norm_eps, shape_.all_kv_heads, shape_.first_counted_kv, sum);
  };
  if (!shape_.qk_norm_after_rope) norm();
  if (shape_.clip_qkv > 0) {
    for (at::Tensor* part : {&q_THE, &k_TKE, &v_TKE}) *part = part->clamp(-shape_.clip_qkv, shape_.clip_qkv);
  }
  q_THE = plain_rope(q_THE, cos_TE2, sin_TE2, shape_.rotary_dim);
  if (K > 0) k_TKE = plain_rope(k_TKE, cos_TE2, sin_TE2, shape_.rotary_dim);
  if (shape_.qk_norm_after_rope) norm();
  if (shape_.query_scale_beta > 0)
    q_THE = q_THE * query_scales(shape_, batch.positions_T).to(q_THE.device()).view({-1, 1, 1});
  if (K > 0 && weights_.v_norm.defined()) v_TKE = plain_rms_norm(v_TKE, weights_.v_norm, shape_.rms_norm_eps);
  if (shape_.value_scale != 1.0f) v_TKE = v_TKE * shape_.value_scale;
  if (kv != nullptr && K > 0) *kv = {k_TKE, v_TKE};
  if (K == 0) std::tie(k_TKE, v_TKE) = std::pair(kv->k_TKE, kv->v_TKE);
  const at::Tensor kv_of_head = at::tensor(shape_.kv_of_head, at::kLong).to(k_TKE.device());
  at::Tensor out_THV = plain_attention(q_THE, k_TKE.index_select(1, kv_of_head), v_TKE.index_select(1, kv_of_head),
                                       weights_.sinks, shape_, batch);
  if (shape_.gate_numbers > 0) {
    const at::Tensor gate = plain_product(input_TD, weights_.gate).unflatten(1, {H, -1});
    out_THV = out_THV * (shape_.gate == AttentionGate::kSigmoid ? at::sigmoid(gate) : at::softplus(gate));
  }
  return plain_product(out_THV.reshape({-1, H * V}), weights_.o_proj);
}

namespace {

// The keys that each query sees, by sequence. short_TL: the queries' short vector after its norm.
std::vector<at::Tensor> plain_choice(const Indexer& indexer, const at::Tensor& input_TD, const at::Tensor& short_TL,
                                     const PackedBatch& batch, const at::Tensor& cos_TE2, const at::Tensor& sin_TE2) {
  const IndexerWeights& weights = indexer.weights();
  const std::int64_t I = indexer.config().heads, E = indexer.config().head_dim, R = 2 * cos_TE2.size(1);
  const at::Tensor q_TIE = plain_rope(plain_product(short_TL, weights.q_proj).view({-1, I, E}), cos_TE2, sin_TE2, R),
                   k_TE = plain_input(weights.k_norm, plain_product(input_TD, weights.k_proj), IndexerConfig::kNormEps),
                   turned_TE = plain_rope(k_TE.unsqueeze(1), cos_TE2, sin_TE2, R).squeeze(1),
                   weights_TI = plain_product(input_TD, weights.head_proj);
  std::vector<at::Tensor> visible;
  for (std::int64_t s = 0; s < batch.num_sequences(); ++s) {
    const std::int64_t begin = batch.cu_seqlens[s], length = batch.cu_seqlens[s + 1] - begin;
    visible.push_back(chosen_keys(q_TIE.narrow(0, begin, length), turned_TE.narrow(0, begin, length),
                                  weights_TI.narrow(0, begin, length), indexer.config().top_k));
  }
  return visible;
}

}  // namespace

// Keys and values of every head are made from the latents.
at::Tensor Attention::latent_reference(const at::Tensor& hidden_TD, const PackedBatch& batch, const at::Tensor& cos_TE2,
                                       const at::Tensor& sin_TE2, KeysAndValues* kv) const {
  const LatentConfig& latent = *shape_.latent;
  const LatentWeights& up = *weights_.latent;
  const std::int64_t H = shape_.heads, C = latent.rank, R = latent.rope_dim, N = latent.nope_dim;
  const at::Tensor input_TD = plain_input(weights_.norms, hidden_TD, shape_.rms_norm_eps),
                   short_TA = plain_product(input_TD, weights_.qkv_proj);
  const auto parts = short_TA.split_with_sizes({short_TA.size(1) - C - R, C, R}, 1);
  at::Tensor queries = parts[0];
  if (latent.query_rank > 0) queries = plain_rms_norm(queries, weights_.q_norm, LatentConfig::kNormEps);
  std::vector<at::Tensor> visible_LL;
  if (kv != nullptr) visible_LL = kv->visible_LL;
  if (weights_.indexer && visible_LL.empty())
    visible_LL = plain_choice(*weights_.indexer, input_TD, queries, batch, cos_TE2, sin_TE2);
  if (kv != nullptr) kv->visible_LL = visible_LL;
  if (latent.query_rank > 0) queries = plain_product(queries, up.q_up_proj);
  const auto q = queries.view({-1, H, N + R}).split_with_sizes({N, R}, 2);
  const at::Tensor latent_TC = plain_rms_norm(parts[1], weights_.k_norm, LatentConfig::kNormEps);
  std::vector<at::Tensor> keys, values;
  for (std::size_t head = 0; head < up.key_up.size(); ++head) {
    keys.push_back(at::mm(latent_TC, up.key_up[head].plain_weight()));
    values.push_back(at::mm(latent_TC, up.value_up[head].plain_weight().t()));
  }
  const at::Tensor turned_T1R = plain_rope(parts[2].unsqueeze(1), cos_TE2, sin_TE2, R);
  const at::Tensor q_THE = at::cat({q[0], plain_rope(q[1], cos_TE2, sin_TE2, R)}, 2),
                   k_THE = at::cat({at::stack(keys, 1), turned_T1R.expand({-1, H, R})}, 2);
  return plain_product(plain_attention(q_THE, k_THE, at::stack(values, 1), {}, shape_, batch, visible_LL).flatten(1),
                       weights_.o_proj);
}

at::Tensor FeedForward::reference(const at::Tensor& hidden_TD, const std::function<void(at::Tensor&)>& sum) const {
  const at::Tensor input_TD = plain_input(weights_.norms, hidden_TD, shape_.rms_norm_eps);
  const at::Tensor product_TF2 = plain_product(input_TD, weights_.gate_up_proj);
  if (const Xielu& xielu = weights_.xielu; xielu.is_on) {
    const at::Tensor &x = product_TF2, linear = x * Xielu::kBeta;
    return plain_product(at::where(x > 0, x.square() * xielu.alpha_p + linear,
                                   (at::expm1(x.clamp_max(Xielu::kLeast)) - x) * xielu.alpha_n + linear),
                         weights_.down_proj);
  }
  if (!shape_.gated_mlp) return plain_product(activated(product_TF2, shape_.activation), weights_.down_proj);
  const auto halves = product_TF2.chunk(2, -1);
  if (const double limit = shape_.swiglu_limit; limit > 0) {
    const at::Tensor gate_TF = halves[0].clamp_max(limit), up_TF = halves[1].clamp(-limit, limit);
    return plain_product(gate_TF * at::sigmoid(gate_TF * shape_.swiglu_alpha) * (up_TF + 1), weights_.down_proj);
  }
  at::Tensor gate_TF = halves[0];
  if (thins_gates()) {
    const at::Tensor wide_TF = gate_TF.to(at::kDouble);
    at::Tensor sums_T2 = at::stack({wide_TF.sum(1), wide_TF.square().sum(1)}, 1).contiguous();
    if (sum) sum(sums_T2);
    const at::Tensor means_T2 = sums_T2 / (sum ? shape_.all_mlp : shape_.mlp), mean_T1 = means_T2.narrow(1, 0, 1),
                     deviation_T1 = (means_T2.narrow(1, 1, 1) - mean_T1.square()).clamp_min(0).sqrt();
    gate_TF = at::relu(gate_TF - (mean_T1 + deviation_T1 * *shape_.gate_cutoff).to(at::kFloat));
  }
  return plain_product(activated(gate_TF, shape_.activation) * halves[1], weights_.down_proj);
}

at::Tensor Experts::reference_logits(const at::Tensor& hidden_TD) const {
  return plain_product(plain_input(router_norms(), hidden_TD, shape_.rms_norm_eps), weights_.router);
}

at::Tensor Experts::scaled(const at::Tensor& weights_Tk, const at::Tensor& experts_Tk) const {
  if (!weights_.scales_X.defined()) return weights_Tk;
  return weights_Tk *
         weights_.scales_X.index_select(0, experts_Tk.reshape({-1}).to(at::kLong)).view(experts_Tk.sizes());
}

at::Tensor Experts::reference(const at::Tensor& hidden_TD) const {
  Routes routes =
      choose_experts(shape_.router_rule(), reference_logits(hidden_TD).detach().contiguous(), weights_.choice_bias_X);
  routes.weights_Tk = scaled(routes.weights_Tk, routes.experts_Tk);
  return reference(hidden_TD, routes);
}

// The weights of the routes are constants here: the router gets no gradient.
at::Tensor Experts::reference(const at::Tensor& hidden_TD, const Routes& routes) const {
  const at::Tensor input_TD = plain_input(weights_.norms, hidden_TD, shape_.rms_norm_eps);
  at::Tensor out_TD = at::zeros_like(input_TD);
  for (std::int64_t x = 0; x < shape_.num_experts; ++x) {
    const at::Tensor places_N2 = at::nonzero(routes.experts_Tk == x);
    if (places_N2.size(0) == 0) continue;
    const at::Tensor tokens_N = places_N2.select(1, 0);
    const at::Tensor weights_N =
        routes.weights_Tk.reshape({-1}).index_select(0, tokens_N * shape_.experts_per_token + places_N2.select(1, 1));
    const at::Tensor inputs_ND = input_TD.index_select(0, tokens_N), weights_N1 = weights_N.unsqueeze(1);
    const FeedForward& expert = weights_.experts[static_cast<std::size_t>(x)];
    out_TD = out_TD.index_add(0, tokens_N,
                              shape_.router.weighs_inputs ? expert.reference(inputs_ND * weights_N1)
                                                          : expert.reference(inputs_ND) * weights_N1);
  }
  return out_TD;
}

}  // namespace magister
