// Runs of sequences, and the two ways to compute attention: flash attention (bf16), or one sequence after the other
// with an explicit mask (f32, head sizes that flash attention does not support, and the host). Source of the op's
// contract: ATen's flash_api.cpp.
#include "model/gpu/gpu_attention.h"

#include <ATen/ATen.h>
#include <ATen/ops/_flash_attention_forward.h>

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "magister/device/upload.h"
#include "magister/model/plain_attention.h"
#include "model/cpu/decoder_layer.h"
#include "model/gpu/cudnn_attention.h"
#include "model/gpu/elementwise_kernels.h"
#include "model/gpu/gather_kernel.h"
#include "model/gpu/gpu_latent.h"
#include "model/gpu/gpu_weights.h"
#include "model/gpu/head_norm_kernels.h"
#include "model/gpu/head_steps_kernel.h"

namespace magister::gpu {
namespace {

at::Tensor as_i32(const std::vector<std::int64_t>& numbers, at::Device device) {
  return upload(at::tensor(numbers, at::kLong).to(at::kInt), device);
}

// Like attend_plainly(), with capped scores, which no library's attention supports; one block of queries at a time. It
// computes in double on a GPU, too, so that a prompt may be cut anywhere.
at::Tensor attend_capped(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const LayerShape& shape) {
  const auto heads_first = [](const at::Tensor& x) { return x.to(at::kDouble).transpose(0, 1); };
  const at::Tensor q_HQE = heads_first(q), k_HEK = heads_first(k).transpose(1, 2), v_HKE = heads_first(v);
  std::vector<at::Tensor> outputs;
  for (std::int64_t begin = 0; begin < q.size(0); begin += kCappedQueries) {
    const std::int64_t rows = std::min(kCappedQueries, q.size(0) - begin), keys = k.size(0) - q.size(0) + begin + rows;
    at::Tensor scores = at::matmul(q_HQE.narrow(1, begin, rows), k_HEK.narrow(2, 0, keys)).mul_(shape.attention_scale);
    scores.div_(shape.attention_softcap).tanh_().mul_(shape.attention_softcap);
    scores.masked_fill_(visible_keys(rows, keys, shape, q.device()).logical_not(),
                        -std::numeric_limits<double>::infinity());
    outputs.push_back(at::matmul(at::softmax(scores, -1), v_HKE.narrow(1, 0, keys)));
  }
  return at::cat(outputs, 1).transpose(0, 1).to(q.scalar_type());
}

// q [Lq, H, E], k and v [Lk, H, E] -> [Lq, H, E]. On the CPU it computes in double: there the order of a product's sums
// depends on the number of queries, but rounding from double removes the difference. So a prompt may be cut anywhere.
at::Tensor attend_plainly(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const LayerShape& shape) {
  const at::ScalarType type = q.is_cuda() ? q.scalar_type() : at::kDouble;
  const auto heads_first = [type](const at::Tensor& x) { return x.to(type).transpose(0, 1).unsqueeze(0); };
  if (q.size(0) == 0) return at::empty_like(q);  // a text without tokens
  if (shape.attention_softcap > 0) return attend_capped(q, k, v, shape);
  const at::Tensor mask = visible_keys(q.size(0), k.size(0), shape, q.device());
  return at::scaled_dot_product_attention(heads_first(q), heads_first(k), heads_first(v), mask, 0.0, false,
                                          shape.attention_scale)
      .squeeze(0)
      .transpose(0, 1)
      .to(q.scalar_type());
}

// Keys or values of a run, [N, K, E], by plain indexing: for head sizes that the kernel does not support, and as its
// reference.
at::Tensor of_pages(const at::Tensor& pages_PKSE, const at::Tensor& slots_N) {
  return at::index(pages_PKSE,
                   {at::div(slots_N, KvPages::kSlots, "floor"), std::nullopt, at::remainder(slots_N, KvPages::kSlots)});
}

template <typename A>
void gather(const at::Tensor& keys, const at::Tensor& values, const at::Tensor& slots_N, at::Tensor& keys_NKE,
            at::Tensor& values_NKE, const Queue& queue) {
  const std::int64_t N = slots_N.size(0), K = keys.size(1), E = keys.size(3);
  const GatherKeys<A> kernel{data<A>(keys),
                             data<A>(values),
                             data<std::int64_t>(slots_N),
                             data<A>(keys_NKE),
                             data<A>(values_NKE),
                             static_cast<std::uint32_t>(N),
                             static_cast<std::uint32_t>(K),
                             static_cast<std::uint32_t>(E)};
  launch(kernel, kernel.shape(), queue);
}

HeadSteps steps_of(const GpuLayer& layer, const at::Tensor& positions_T) {
  const LayerShape& shape = layer.shape;
  MAGISTER_ASSERT(!shape.qk_norm_after_rope || !layer.q_norm_bias.defined());
  return {data<float>(layer.q_norm_bias),
          data<float>(layer.k_norm_bias),
          shape.qk_norm_after_rope && layer.q_norm.defined(),
          layer.norms_values,
          shape.value_scale,
          shape.query_scale_beta,
          shape.query_scale_positions,
          shape.query_scale_shift,
          data<std::int32_t>(positions_T)};
}

}  // namespace

bool flash_takes(const LayerShape& shape, at::ScalarType dtype, const Queue& queue) {
  if (shape.latent) return flash_takes(expanded_shape(shape), dtype, queue);
  return !queue.on_host() && dtype == at::kBFloat16 && shape.head_dim % 8 == 0 && shape.head_dim <= 256 &&
         shape.attention_softcap == 0;
}

bool prompts_may_be_cut(const LayerShape& shape, at::ScalarType dtype, const Queue& queue) {
  return queue.on_host() || shape.attention_softcap > 0 || flash_takes(shape, dtype, queue);
}

bool groups_are_even(const LayerShape& shape) {
  if (shape.heads % shape.kv_heads != 0) return false;
  for (std::int64_t head = 0; head < shape.heads; ++head) {
    if (shape.kv_of_head[static_cast<std::size_t>(head)] != head / (shape.heads / shape.kv_heads)) return false;
  }
  return true;
}

// Norms over the heads of all shards.
template <typename A>
void norm_divided_heads(const GpuLayer& layer, const HeadSquares& squares, const at::Tensor& qkv_TQ,
                        const Queue& queue) {
  const LayerShape& shape = layer.shape;
  const std::int64_t T = qkv_TQ.size(0), E = shape.head_dim, q = shape.heads * E, k = shape.kv_heads * E;
  const std::int64_t not_counted = shape.first_counted_kv * E;
  at::Tensor squares_T2 = squares.squares_T2;
  const SumHeadSquares<A> sums{data<A>(qkv_TQ), data<float>(squares_T2), q + 2 * k, q,
                               q + not_counted, k - not_counted};
  launch(sums, sums.shape(T), queue);
  squares.add(squares_T2);
  const NormHeads<A> norms{data<A>(qkv_TQ),
                           data<float>(squares_T2),
                           data<float>(layer.q_norm),
                           data<float>(layer.k_norm),
                           q + 2 * k,
                           q,
                           k,
                           static_cast<float>(shape.all_heads * E),
                           static_cast<float>(shape.all_kv_heads * E),
                           shape.rms_norm_eps};
  launch(norms, norms.shape(T), queue);
}

template <typename A>
void rotate_heads(const GpuLayer& layer, const HeadSquares& squares, const at::Tensor& qkv_TQ,
                  const at::Tensor& cos_PR2, const at::Tensor& sin_PR2, const at::Tensor& rows_T,
                  const at::Tensor& positions_T, const at::Tensor& keys, const at::Tensor& values,
                  const at::Tensor& slots_T, const Queue& queue) {
  const LayerShape& shape = layer.shape;
  const std::int64_t T = qkv_TQ.size(0), H = shape.heads, K = shape.kv_heads, E = shape.head_dim;
  // A norm over all heads together cannot run in the kernel that processes single heads, so it runs before.
  const bool divided = shape.all_heads > 0, of_all = divided || (layer.q_norm.defined() && layer.q_norm.numel() != E);
  if (divided) {
    norm_divided_heads<A>(layer, squares, qkv_TQ, queue);
  } else if (of_all) {
    auto* q = data<A>(qkv_TQ);
    const bool eight = E % 8 == 0;
    const NormRows<A> on_q{q, data<float>(layer.q_norm), H * E, shape.rms_norm_eps, (H + 2 * K) * E, eight};
    launch(on_q, on_q.shape(T), queue);
    const NormRows<A> on_k{q + H * E, data<float>(layer.k_norm), K * E, shape.rms_norm_eps, (H + 2 * K) * E, eight};
    launch(on_k, on_k.shape(T), queue);
  }
  if (shape.clip_qkv > 0) {  // OLMoE clips after its norm over all heads
    MAGISTER_ASSERT(of_all);
    at::Tensor(qkv_TQ).clamp_(-shape.clip_qkv, shape.clip_qkv);
  }
  const RotateHeads<A> kernel{data<A>(qkv_TQ),
                              data<float>(cos_PR2),
                              data<float>(sin_PR2),
                              data<std::int32_t>(rows_T),
                              of_all ? nullptr : data<float>(layer.q_norm),
                              of_all ? nullptr : data<float>(layer.k_norm),
                              data<A>(keys),
                              data<A>(values),
                              data<std::int64_t>(slots_T),
                              H,
                              K,
                              E,
                              shape.rotary_dim,
                              shape.rms_norm_eps,
                              shape.value_dim()};
  const HeadSteps steps = steps_of(layer, positions_T);
  if (!steps.any()) return launch(kernel, kernel.shape(T), queue);
  MAGISTER_ASSERT(!of_all || !steps.norms_after);
  const RotateHeadsInSteps<A> in_steps{kernel, steps};
  launch(in_steps, in_steps.shape(T), queue);
}
template void rotate_heads<Bf16>(const GpuLayer&, const HeadSquares&, const at::Tensor&, const at::Tensor&,
                                 const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                 const at::Tensor&, const at::Tensor&, const Queue&);
template void rotate_heads<float>(const GpuLayer&, const HeadSquares&, const at::Tensor&, const at::Tensor&,
                                  const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                  const at::Tensor&, const at::Tensor&, const Queue&);

std::pair<at::Tensor, at::Tensor> gathered_keys(const at::Tensor& keys, const at::Tensor& values,
                                                const at::Tensor& slots_N, const Queue& queue) {
  const std::int64_t N = slots_N.size(0), K = keys.size(1), E = keys.size(3),
                     bytes = E * static_cast<std::int64_t>(keys.element_size());
  if (bytes % 16 != 0 || N * K * (bytes / 16) >= std::int64_t{1} << 31)
    return {of_pages(keys, slots_N), of_pages(values, slots_N)};
  at::Tensor keys_NKE = at::empty({N, K, E}, keys.options()), values_NKE = at::empty({N, K, E}, keys.options());
  if (keys.scalar_type() == at::kBFloat16) {
    gather<Bf16>(keys, values, slots_N, keys_NKE, values_NKE, queue);
  } else {
    gather<float>(keys, values, slots_N, keys_NKE, values_NKE, queue);
  }
  return {keys_NKE, values_NKE};
}

namespace {

// Appends the place of each key of sequence s: a slot in its pages, or a row of the pass.
void add_keys(const PackedBatch& batch, const std::vector<BlockTable>& slots, std::int64_t s,
              std::vector<std::int64_t>& keys) {
  const auto index = static_cast<std::size_t>(s);
  const std::int64_t begin = batch.cu_seqlens[index], rows = batch.cu_seqlens[index + 1] - begin, past = batch.past(s);
  if (slots.empty()) {
    const std::int64_t prefix = batch.cu_seqlens[static_cast<std::size_t>(batch.prefix_of_S[index])];
    for (std::int64_t j = 0; j < past + rows; ++j) keys.push_back(j < past ? prefix + j : begin + j - past);
    return;
  }
  const BlockTable& table = slots[index];
  for (std::int64_t j = 0; j < past + rows; ++j) {
    const std::int64_t slot = table.offset + j;
    keys.push_back(table.pages[slot / KvPages::kSlots] * KvPages::kSlots + slot % KvPages::kSlots);
  }
}

}  // namespace

AttentionPlan plan_attention(const PackedBatch& batch, const std::vector<BlockTable>& slots, at::Device device,
                             bool with_cudnn) {
  MAGISTER_ASSERT(!slots.empty() || batch.past_S.empty() || !batch.prefix_of_S.empty());
  const std::int64_t most_keys = slots.empty() ? batch.num_tokens() : kMostGatheredKeys;
  AttentionPlan plan;
  std::vector<std::vector<std::int64_t>> key_slots;  // one list per run
  bool cached_before = false;
  with_cudnn = with_cudnn && slots.empty() && batch.prefix_of_S.empty();
  for (std::int64_t s = 0; s < batch.num_sequences(); ++s) {
    const std::int64_t begin = batch.cu_seqlens[s], rows = batch.cu_seqlens[s + 1] - begin, past = batch.past(s);
    const bool cached = past > 0, by_cudnn = with_cudnn && rows >= kLongText;
    if (plan.runs.empty() || cached != cached_before || by_cudnn || plan.runs.back().by_cudnn ||
        (cached && plan.runs.back().cu_keys.back() + past + rows > most_keys)) {
      plan.runs.push_back({.first_row = begin, .cu_queries = {0}, .cu_keys = {0}, .by_cudnn = by_cudnn});
      key_slots.emplace_back();
    }
    cached_before = cached;
    AttentionRun& run = plan.runs.back();
    run.num_rows += rows;
    run.cu_queries.push_back(run.num_rows);
    run.cu_keys.push_back(run.cu_keys.back() + past + rows);
    run.longest_queries = std::max(run.longest_queries, rows);
    run.longest_keys = std::max(run.longest_keys, past + rows);
    if (cached) add_keys(batch, slots, s, key_slots.back());
  }
  for (std::size_t i = 0; i < plan.runs.size(); ++i) {
    AttentionRun& run = plan.runs[i];
    run.cu_queries_device = as_i32(run.cu_queries, device);
    run.cu_keys_device = as_i32(run.cu_keys, device);
    if (!key_slots[i].empty()) run.slots_N = upload(at::tensor(key_slots[i], at::kLong), device);
  }
  return plan;
}

void attend_run(const AttentionRun& run, const LayerShape& shape, const at::Tensor& q, const at::Tensor& k,
                const at::Tensor& v, bool flash, std::vector<at::Tensor>& outputs) {
  if (run.by_cudnn && cudnn_takes(shape, q.scalar_type())) {
    outputs.push_back(attend_by_cudnn(q, k, v, shape.attention_scale));
    return;
  }
  if (flash) {
    // Always pass a window, even one wider than all keys. Without a window, ATen swaps grouped heads with queries if
    // the longest query is 1, and splits keys by the number of sequences: the bits of a row would depend on its
    // neighbours. A layer's own window must not be wider than longest_keys: ATen would drop it if all texts are
    // short, and the other kernel uses other blocks of keys on compute capability 8.6 and 8.9.
    const std::int64_t longest_keys = std::max(run.longest_keys, shape.sliding_window),
                       left = shape.sliding_window > 0 ? shape.sliding_window - 1 : longest_keys;
    outputs.push_back(std::get<0>(at::_flash_attention_forward(
        q, k, v, run.cu_queries_device, run.cu_keys_device, run.longest_queries, longest_keys, 0.0,
        /*is_causal=*/true, /*return_debug_mask=*/false, shape.attention_scale, left, /*window_size_right=*/0)));
    return;
  }
  for (std::size_t s = 0; s + 1 < run.cu_queries.size(); ++s) {
    const auto part = [s](const at::Tensor& x, const std::vector<std::int64_t>& cu) {
      return x.narrow(0, cu[s], cu[s + 1] - cu[s]);
    };
    outputs.push_back(attend_plainly(part(q, run.cu_queries), part(k, run.cu_keys), part(v, run.cu_keys), shape));
  }
}

at::Tensor attend(const AttentionPlan& plan, const LayerShape& shape, const at::Tensor& qkv_TQ, const at::Tensor& keys,
                  const at::Tensor& values, bool flash, const Queue& queue) {
  const std::int64_t T = qkv_TQ.size(0), H = shape.heads, K = shape.kv_heads, E = shape.head_dim;
  const at::Tensor qkv_TAE = qkv_TQ.view({T, H + 2 * K, E});
  at::Tensor kv_of_head;
  if (!flash || !groups_are_even(shape)) kv_of_head = upload(at::tensor(shape.kv_of_head, at::kLong), qkv_TQ.device());
  std::vector<at::Tensor> outputs;
  for (const AttentionRun& run : plan.runs) {
    if (run.num_rows == 0) continue;  // only texts without tokens: flash attention would have no block
    const at::Tensor rows = qkv_TAE.narrow(0, run.first_row, run.num_rows);
    const at::Tensor q = rows.narrow(1, 0, H);
    at::Tensor k = rows.narrow(1, H, K), v = rows.narrow(1, H + K, K);
    if (run.slots_N.defined() && keys.defined()) {
      std::tie(k, v) = gathered_keys(keys, values, run.slots_N, queue);
    } else if (run.slots_N.defined()) {
      k = qkv_TAE.narrow(1, H, K).index_select(0, run.slots_N);
      v = qkv_TAE.narrow(1, H + K, K).index_select(0, run.slots_N);
    }
    if (kv_of_head.defined()) {
      k = k.index_select(1, kv_of_head);
      v = v.index_select(1, kv_of_head);
    }
    attend_run(run, shape, q, k, v, flash, outputs);
  }
  const at::Tensor all = outputs.size() == 1 ? outputs[0] : at::cat(outputs, 0);
  return all.reshape({T, H * E});
}

}  // namespace magister::gpu
