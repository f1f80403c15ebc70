// Compares attention, MLP and head of a CPU model with plain ATen code on one small block.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "magister/core/spare_memory.h"
#include "magister/model/cpu/cpu_kernels.h"
#include "model/cpu/cpu_model.h"
#include "model/self_test.h"

namespace magister {

namespace {

// The keys that the fast path has chosen, see KeysAndValues. The reference gets the same choice: rounding may turn one
// between scores that are close.
std::vector<at::Tensor> chosen_masks(const PackedBatch& batch, const LayerShape& shape, const LayerBuffers& buffers) {
  std::vector<at::Tensor> masks;
  for (std::int64_t s = 0; s < batch.num_sequences() && shape.has_indexer; ++s) {
    const std::int64_t begin = batch.cu_seqlens[s], length = batch.cu_seqlens[s + 1] - begin;
    at::Tensor mask_LL = at::ones({length, length}, at::kBool).tril();
    for (std::int64_t row = 0; row < length; ++row) {
      if (!shape.is_sparse_at(row)) continue;
      mask_LL[row].zero_().index_fill_(0, buffers.chosen_Tk[begin + row].to(at::kLong), true);
    }
    masks.push_back(mask_LL);
  }
  return masks;
}

void compare(const char* path, const at::Tensor& fast, const at::Tensor& plain, double limit) {
  compare_paths(path, fast, plain, limit, cpu_kernels().name);
}

// In f64, a few columns at a time: their weights in f64 would else be the largest tensor of the program's start.
at::Tensor plain_product_in_f64(const at::Tensor& hidden_TD, const Linear& head) {
  constexpr std::int64_t kColumns = 4 * Linear::kPanel;
  const at::Tensor wide_TD = hidden_TD.to(at::kDouble);
  at::Tensor out_Tc = at::empty({hidden_TD.size(0), head.out_features()}, at::kFloat);
  for (std::int64_t first = 0; first < out_Tc.size(1); first += kColumns) {
    const std::int64_t last = std::min(first + kColumns, out_Tc.size(1));
    const at::Tensor weight_cD = head.outputs(first, last).plain_weight().to(at::kDouble);
    out_Tc.slice(1, first, last).copy_(at::mm(wide_TD, weight_cD.t()));
  }
  return head.bias_N.defined() ? out_Tc.add_(head.bias_N) : out_Tc;
}

// Codes times rows of a text that is being written. Their activations have 16 bits.
void test_codes(const Linear& weight, const at::Tensor& hidden_TD) {
  constexpr double kLimit = 1e-3;
  const std::int64_t D = hidden_TD.size(1), columns = std::min<std::int64_t>(weight.out_features(), 480);
  Linear some = weight.outputs(0, columns);
  some.bias_N = at::Tensor();
  const at::Tensor plain_Tc = plain_product_in_f64(hidden_TD, some);
  at::Tensor product_Tc = at::empty_like(plain_Tc);
  for (const std::int64_t rows : {std::int64_t{1}, hidden_TD.size(0)}) {
    linear_tile(hidden_TD.const_data_ptr<float>(), D, rows, some, product_Tc.data_ptr<float>(), columns, false, nullptr,
                RowKind::kText);
    compare("product with codes", product_Tc.narrow(0, 0, rows), plain_Tc.narrow(0, 0, rows), kLimit);
  }
}

// `buffers` are for the layer's shape.
void test_attention(const Attention& attention, const PackedBatch& batch, const at::Tensor& hidden_TD,
                    const RopeTables& tables, LayerBuffers& buffers, ThreadPool& pool, double tolerance) {
  const LayerShape& shape = attention.shape();
  const std::int64_t T = batch.num_tokens();
  const RopeRows& rope = tables.rows[shape.rope_table];
  KvPages kv = pages_for(shape, BatchPages(batch).num_pages());
  at::Tensor out_TD = at::empty({T, shape.hidden_size}, at::kFloat);
  attention.project_qkv(hidden_TD.const_data_ptr<float>(), batch, 0, T, rope, kv, buffers, 0);
  if (shape.delta) {
    for (std::int64_t task = 0; task < batch.num_sequences() * shape.kv_heads; ++task)
      attention.run_delta(batch, task / shape.kv_heads, task % shape.kv_heads, nullptr, buffers, 0);
  } else {
    // Both sides use this shard's squares only.
    if (shape.all_heads > 0) attention.place_heads(batch, 0, T, rope, kv, buffers);
    attention.choose_keys(batch, kv, buffers, pool);
    for (const AttentionTile& tile : attention_tiles(batch, shape)) attention.attend(tile, kv, buffers, 0);
  }
  attention.project_output(0, T, buffers, out_TD.data_ptr<float>(), false);
  KeysAndValues given{{}, {}, chosen_masks(batch, shape, buffers)};
  compare(shape.delta ? "linear attention" : "attention", out_TD,
          attention.reference(hidden_TD, batch, tables.gather_cos(shape), tables.gather_sin(shape), {}, &given),
          tolerance);
}

}  // namespace

void CpuModel::self_test() {
  const DecoderLayer& layer = weights_.decoder.front();
  const LayerShape& shape = layer.shape();
  const PackedBatch batch = self_test_batch(weights_.config.vocab_size);
  const std::int64_t T = batch.num_tokens(), D = shape.hidden_size;
  const RopeTables tables = weights_.rope_tables(batch);
  const at::Tensor hidden_TD = self_test_block(T, D);
  // Tolerances relative to the range: fp32 sums have another order, and bf16 has 8 bits. The head may be bf16 although
  // the layers are quantised.
  const auto tolerance_of = [](const Linear& linear) { return linear.dtype() == at::kFloat ? 1e-4 : 4e-2; };
  const double tolerance = tolerance_of(layer.attention.weights().qkv_proj);

  release_spare_memory();  // the plain code of one part must not stay in memory with that of the next
  const BatchPages pages(batch);
  LayerBuffers buffers(batch, pages.sequences, shape, pool_.num_threads());
  at::Tensor mlp_TD = at::empty({T, D}, at::kFloat);
  test_attention(layer.attention, batch, hidden_TD, tables, buffers, pool_, tolerance);
  const auto other = std::find_if(weights_.decoder.begin(), weights_.decoder.end(), [&](const DecoderLayer& one) {
    return one.shape().delta.has_value() != shape.delta.has_value();
  });
  if (other != weights_.decoder.end()) {
    LayerBuffers of_other(batch, pages.sequences, other->shape(), pool_.num_threads());
    test_attention(other->attention, batch, hidden_TD, tables, of_other, pool_, tolerance);
  }
  release_spare_memory();
  if (const Experts* experts = layer.experts()) {
    experts->run(hidden_TD.const_data_ptr<float>(), T, buffers, mlp_TD.data_ptr<float>(), false, pool_);
    // The reference gets the same choice of experts: where two experts are close, plain logits, which differ in the
    // last bits, could give another choice.
    compare("experts", mlp_TD, experts->reference(hidden_TD, {buffers.experts_Tk, buffers.expert_weights_Tk}),
            tolerance);
    const RouterRule rule = shape.router_rule();
    const at::Tensor plain_TL = experts->reference_logits(hidden_TD).contiguous();
    const at::Tensor chosen_Tk = buffers.experts_Tk.to(at::kLong);
    // Where two experts are close, either may be chosen: their scores are compared, not their numbers.
    at::Tensor scores_TX = plain_TL.narrow(1, 0, rule.experts);
    const bool sigmoid = rule.config.scores == RouterConfig::Scores::kSigmoid;
    if (!rule.config.chooses_by_logits) scores_TX = sigmoid ? at::sigmoid(scores_TX) : at::softmax(scores_TX, -1);
    const at::Tensor& bias_X = experts->weights().choice_bias_X;
    if (bias_X.defined()) scores_TX = scores_TX + bias_X;
    const at::Tensor wanted_Tk = choose_experts(rule, plain_TL, bias_X).experts_Tk.to(at::kLong);
    const auto sums = [&](const at::Tensor& of_Tk) {
      return scores_TX.gather(1, of_Tk.narrow(1, 0, rule.per_token)).sum(1);
    };
    compare("choice of experts", sums(chosen_Tk),
            rule.config.groups > 1 ? sums(wanted_Tk) : std::get<0>(scores_TX.topk(rule.per_token)).sum(1), 1e-4);
    compare("router", buffers.expert_weights_Tk, experts->scaled(route_weights(rule, plain_TL, chosen_Tk), chosen_Tk),
            1e-4);
  } else {
    layer.feed_forward()->run(hidden_TD.const_data_ptr<float>(), 0, T, buffers, 0, mlp_TD.data_ptr<float>(), false);
    compare("MLP", mlp_TD, layer.mlp_reference(hidden_TD), tolerance);
  }

  if (layer.attention.weights().qkv_proj.is_quantized()) test_codes(layer.attention.weights().qkv_proj, hidden_TD);
  release_spare_memory();
  const std::int64_t columns = std::min<std::int64_t>(weights_.lm_head.projection.out_features(), 1000);
  const Linear head = weights_.lm_head.projection.outputs(0, columns);
  at::Tensor logits_Tc = at::empty({T, columns}, at::kFloat);
  linear_tile(hidden_TD.const_data_ptr<float>(), D, T, head, logits_Tc.data_ptr<float>(), columns, false);
  const at::Tensor plain_Tc = plain_product_in_f64(hidden_TD, head);
  compare("head product", logits_Tc, plain_Tc, tolerance_of(head));
  release_spare_memory();
  for (std::int64_t t : {std::int64_t{0}, T - 1}) {
    SoftmaxState state;
    const at::Tensor row_c = at::nan_to_num(plain_Tc[t], 0.0, 0.0, 0.0);
    const float* row = row_c.const_data_ptr<float>();
    for (std::int64_t begin = 0; begin < columns; begin += 333) {
      cpu_kernels().logsumexp_step(row + begin, std::min<std::int64_t>(333, columns - begin), &state);
    }
    const double plain = at::logsumexp(row_c.to(at::kDouble), {0}).item<double>();
    compare("log-sum-exp", at::tensor({state.maximum + std::log(state.sum)}, at::kDouble),
            at::tensor({plain}, at::kDouble), 1e-5);
  }
}

}  // namespace magister
