// Runs of sequences, and the ways to compute attention: flash attention (bf16), or one sequence after the other, with
// an explicit mask (f32, head sizes that flash attention does not support, and the host) or in blocks of scores. Source
// of the op's contract: ATen's flash_api.cpp.
#include "model/gpu/gpu_attention.h"

#include <ATen/ATen.h>
#include <ATen/ops/_flash_attention_forward.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "magister/device/upload.h"
#include "magister/model/plain_attention.h"
#include "model/cpu/decoder_layer.h"
#include "model/gpu/attention_row_kernels.h"
#include "model/gpu/cudnn_attention.h"
#include "model/gpu/elementwise_kernels.h"
#include "model/gpu/gather_kernel.h"
#include "model/gpu/gpu_latent.h"
#include "model/gpu/gpu_rotation.h"
#include "model/gpu/gpu_weights.h"
#include "model/gpu/head_norm_kernels.h"
#include "model/gpu/kv_code_kernels.h"

namespace magister::gpu {
static_assert(kPageSlots == KvPages::kSlots);

namespace {

at::Tensor as_i32(const std::vector<std::int64_t>& numbers, at::Device device) {
  return upload(at::tensor(numbers, at::kLong).to(at::kInt), device);
}

// q [Lq, H, E], k [Lk, H, E] and v [Lk, H, V] -> [Lq, H, V]. On the CPU it computes in double: there the order of a
// product's sums depends on the number of queries, but rounding from double removes the difference. So a prompt may be
// cut anywhere.
at::Tensor attend_plainly(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const LayerShape& shape,
                          const ScoreTerms& terms) {
  const at::ScalarType type = q.is_cuda() ? q.scalar_type() : at::kDouble;
  const auto heads_first = [type](const at::Tensor& x) { return x.to(type).transpose(0, 1).unsqueeze(0); };
  if (q.size(0) == 0) return at::empty({0, v.size(1), v.size(2)}, q.options());  // a text without tokens
  if (needs_score_blocks(shape, terms.sinks_H.defined())) return attend_in_blocks(q, k, v, shape, terms);
  const at::Tensor mask = visible_keys(q.size(0), k.size(0), shape, q.device());
  return at::scaled_dot_product_attention(heads_first(q), heads_first(k), heads_first(v), mask, 0.0, false,
                                          shape.attention_scale)
      .squeeze(0)
      .transpose(0, 1)
      .to(q.scalar_type());
}

// Keys or values of a run by plain indexing: for head sizes that the kernel does not support, and as its reference.
at::Tensor of_pages(const at::Tensor& pages_PKSE, const at::Tensor& slots_N) {
  return at::index(pages_PKSE,
                   {at::div(slots_N, KvPages::kSlots, "floor"), std::nullopt, at::remainder(slots_N, KvPages::kSlots)});
}

template <typename A>
void gather(const at::Tensor& keys, const at::Tensor& values, const at::Tensor& slots_N, at::Tensor& keys_NKE,
            at::Tensor& values_NKV, const Queue& queue) {
  const std::int64_t N = slots_N.size(0), K = keys.size(1), E = keys.size(3), V = values.size(3);
  const GatherKeys<A> kernel{data<A>(keys),
                             data<A>(values),
                             data<std::int64_t>(slots_N),
                             data<A>(keys_NKE),
                             data<A>(values_NKV),
                             static_cast<std::uint32_t>(N),
                             static_cast<std::uint32_t>(K),
                             static_cast<std::uint32_t>(E),
                             static_cast<std::uint32_t>(V)};
  launch(kernel, kernel.shape(), queue);
}

std::pair<at::Tensor, at::Tensor> gathered_codes(const at::Tensor& keys, const at::Tensor& values,
                                                 const at::Tensor& slots_N, const Queue& queue) {
  const std::int64_t N = slots_N.size(0), K = keys.size(1), E = keys.size(3) - 1, V = values.size(3) - 1;
  const auto options = keys.options().dtype(at::kBFloat16);
  const at::Tensor keys_NKE = at::empty({N, K, E}, options), values_NKV = at::empty({N, K, V}, options);
  MAGISTER_ASSERT(N * K * (std::max(E, V) / 8) < std::int64_t{1} << 31);
  const GatherCodes kernel{data<std::uint8_t>(keys),      data<std::uint8_t>(values),    data<std::int64_t>(slots_N),
                           data<Bf16>(keys_NKE),          data<Bf16>(values_NKV),        static_cast<std::uint32_t>(N),
                           static_cast<std::uint32_t>(K), static_cast<std::uint32_t>(E), static_cast<std::uint32_t>(V)};
  launch(kernel, kernel.shape(), queue);
  return {keys_NKE, values_NKV};
}

}  // namespace

bool flash_computes(const LayerShape& shape, at::ScalarType dtype) {
  return dtype == at::kBFloat16 && shape.head_dim % 8 == 0 && shape.head_dim <= 256 && shape.value_dim() % 8 == 0 &&
         shape.value_dim() <= shape.head_dim && shape.attention_softcap == 0 && shape.alibi_slopes.empty();
}

bool flash_takes(const LayerShape& shape, at::ScalarType dtype, const Queue& queue) {
  if (shape.latent) return flash_takes(expanded_shape(shape), dtype, queue);
  return !queue.on_host() && flash_computes(shape, dtype);
}

bool prompts_may_be_cut(const LayerShape& shape, bool has_sinks, at::ScalarType dtype, const Queue& queue) {
  return queue.on_host() || needs_score_blocks(shape, has_sinks) || flash_takes(shape, dtype, queue);
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
  const std::int64_t T = qkv_TQ.size(0), H = shape.heads, K = shape.own_kv_heads(), E = shape.head_dim;
  // A norm over all heads together cannot run in the kernel that processes single heads, so it runs before.
  const bool of_all = norms_all_heads(layer);
  if (shape.all_heads > 0) {
    norm_divided_heads<A>(layer, squares, qkv_TQ, queue);
  } else if (of_all) {
    auto* q = data<A>(qkv_TQ);
    const bool eight = E % 8 == 0 && shape.value_dim() % 8 == 0;
    const std::int64_t width = shape.qkv_features();
    const NormRows<A> on_q{q, data<float>(layer.q_norm), H * E, shape.rms_norm_eps, width, eight};
    launch(on_q, on_q.shape(T), queue);
    if (K > 0) {
      const NormRows<A> on_k{q + H * E, data<float>(layer.k_norm), K * E, shape.rms_norm_eps, width, eight};
      launch(on_k, on_k.shape(T), queue);
    }
  }
  if (shape.clip_qkv > 0) {  // OLMoE clips after its norm over all heads
    MAGISTER_ASSERT(of_all);
    at::Tensor(qkv_TQ).clamp_(-shape.clip_qkv, shape.clip_qkv);
  }
  const auto kernel = rotation_of<A>(layer, qkv_TQ, cos_PR2, sin_PR2, rows_T, keys, values, slots_T);
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
  if (holds_codes(keys)) return gathered_codes(keys, values, slots_N, queue);
  const std::int64_t N = slots_N.size(0), K = keys.size(1), E = keys.size(3), V = values.size(3),
                     at_once = 16 / static_cast<std::int64_t>(keys.element_size());
  if (E % at_once != 0 || V % at_once != 0 || N * K * (std::max(E, V) / at_once) >= std::int64_t{1} << 31)
    return {of_pages(keys, slots_N), of_pages(values, slots_N)};
  at::Tensor keys_NKE = at::empty({N, K, E}, keys.options()), values_NKV = at::empty({N, K, V}, keys.options());
  if (keys.scalar_type() == at::kBFloat16) {
    gather<Bf16>(keys, values, slots_N, keys_NKE, values_NKV, queue);
  } else {
    gather<float>(keys, values, slots_N, keys_NKE, values_NKV, queue);
  }
  return {keys_NKE, values_NKV};
}

template <typename A>
void repeat_keys(const LayerShape& shape, const at::Tensor& rows_TN, const at::Tensor& out_TQ, const Queue& queue) {
  const std::int64_t given = rows_TN.size(1), repeated = repeated_keys(shape);
  MAGISTER_ASSERT(out_TQ.size(1) == given + repeated && rows_TN.is_contiguous() && out_TQ.is_contiguous());
  const RepeatKeys<A> kernel{data<A>(rows_TN), data<A>(out_TQ), given, repeated};
  launch(kernel, kernel.shape(rows_TN.size(0)), queue);
}
template void repeat_keys<Bf16>(const LayerShape&, const at::Tensor&, const at::Tensor&, const Queue&);
template void repeat_keys<float>(const LayerShape&, const at::Tensor&, const at::Tensor&, const Queue&);

template <typename A>
void gate_outputs(const LayerShape& shape, const at::Tensor& gate_TG, const at::Tensor& out_TA, const Queue& queue) {
  const std::int64_t width = shape.heads * shape.value_dim();
  MAGISTER_ASSERT(gate_TG.is_contiguous() && out_TA.is_contiguous() && gate_TG.size(1) == shape.gate_numbers);
  const GateOutputs<A> kernel{data<A>(gate_TG), data<A>(out_TA), width, width / shape.gate_numbers,
                              shape.gate == AttentionGate::kSoftplus};
  launch(kernel, kernel.shape(out_TA.size(0)), queue);
}
template void gate_outputs<Bf16>(const LayerShape&, const at::Tensor&, const at::Tensor&, const Queue&);
template void gate_outputs<float>(const LayerShape&, const at::Tensor&, const at::Tensor&, const Queue&);

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

// Sets cu_chunk_queries and cu_chunk_keys.
void divide_into_chunks(AttentionRun& run, std::int64_t chunk, at::Device device) {
  std::vector<std::int64_t> queries = {0}, keys = {0};
  const auto add = [&](std::int64_t more_queries, std::int64_t more_keys) {
    queries.push_back(queries.back() + more_queries);
    keys.push_back(keys.back() + more_keys);
  };
  for (std::size_t s = 0; s + 1 < run.cu_keys.size(); ++s) {
    const std::int64_t end = run.cu_keys[s + 1] - run.cu_keys[s];
    std::int64_t position = end - (run.cu_queries[s + 1] - run.cu_queries[s]);
    if (position >= chunk) add(0, position / chunk * chunk);
    while (position < end) {
      const std::int64_t begin = position / chunk * chunk, next = std::min(begin + chunk, end);
      add(next - position, next - begin);
      position = next;
    }
  }
  run.cu_chunk_queries = as_i32(queries, device);
  run.cu_chunk_keys = as_i32(keys, device);
}

}  // namespace

AttentionPlan plan_attention(const PackedBatch& batch, const std::vector<BlockTable>& slots, at::Device device,
                             bool with_cudnn, std::int64_t chunk) {
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
    if (chunk > 0) divide_into_chunks(run, chunk, device);
  }
  return plan;
}

namespace {

// q [rows, H, E], k [keys, K, E] and v [keys, K, V] of a run -> [rows, H, V].
at::Tensor attend_by_flash(const AttentionRun& run, const LayerShape& shape, const at::Tensor& q, const at::Tensor& k,
                           at::Tensor v, const at::Tensor& sinks_H) {
  // Always pass a window, even one wider than all keys. Without a window, ATen swaps grouped heads with queries if
  // the longest query is 1, and splits keys by the number of sequences: the bits of a row would depend on its
  // neighbours. A layer's own window must not be wider than longest_keys: ATen would drop it if all texts are
  // short, and the other kernel uses other blocks of keys on compute capability 8.6 and 8.9.
  const bool chunked = shape.chunked_windows;
  const std::int64_t E = shape.head_dim, V = v.size(2), window = chunked ? 0 : shape.sliding_window,
                     longest_keys = std::max(run.longest_keys, window), left = window > 0 ? window - 1 : longest_keys;
  if (V < E) v = at::constant_pad_nd(v, {0, E - V});  // flash attention has one size for keys and values
  const auto results = at::_flash_attention_forward(
      q, k, v, chunked ? run.cu_chunk_queries : run.cu_queries_device, chunked ? run.cu_chunk_keys : run.cu_keys_device,
      run.longest_queries, longest_keys, 0.0, /*is_causal=*/true, /*return_debug_mask=*/false, shape.attention_scale,
      left, /*window_size_right=*/0);
  at::Tensor out = std::get<0>(results);
  if (V < E) out = out.narrow(2, 0, V);
  if (!sinks_H.defined()) return out;
  // The sum of exponentials without the sink, divided by the one with it.
  const at::Tensor share_TH1 = at::sigmoid(std::get<1>(results).t() - sinks_H).unsqueeze(2);
  return (out * share_TH1).to(q.scalar_type());
}

}  // namespace

void attend_run(const AttentionRun& run, const LayerShape& shape, const at::Tensor& q, const at::Tensor& k,
                const at::Tensor& v, bool flash, const ScoreTerms& terms, std::vector<at::Tensor>& outputs) {
  if (run.by_cudnn && cudnn_takes(shape, terms.sinks_H.defined(), q.scalar_type())) {
    outputs.push_back(attend_by_cudnn(q, k, v, shape.attention_scale));
    return;
  }
  if (flash) {
    outputs.push_back(attend_by_flash(run, shape, q, k, v, terms.sinks_H));
    return;
  }
  for (std::size_t s = 0; s + 1 < run.cu_queries.size(); ++s) {
    const auto part = [s](const at::Tensor& x, const std::vector<std::int64_t>& cu) {
      return x.narrow(0, cu[s], cu[s + 1] - cu[s]);
    };
    outputs.push_back(
        attend_plainly(part(q, run.cu_queries), part(k, run.cu_keys), part(v, run.cu_keys), shape, terms));
  }
}

at::Tensor attend(const AttentionPlan& plan, const LayerShape& shape, const AttentionInput& input, bool flash,
                  const Queue& queue) {
  const at::Tensor& qkv_TQ = input.qkv_TQ;
  const std::int64_t T = qkv_TQ.size(0), H = shape.heads, K = shape.kv_heads, E = shape.head_dim, V = shape.value_dim();
  const at::Tensor kv_TQ = input.kv_TQ.defined() ? input.kv_TQ : qkv_TQ;
  const at::Tensor q_THE = qkv_TQ.narrow(1, 0, H * E).unflatten(1, {H, E}),
                   k_TKE = kv_TQ.narrow(1, H * E, K * E).unflatten(1, {K, E}),
                   v_TKV = kv_TQ.narrow(1, (H + K) * E, K * V).unflatten(1, {K, V});
  at::Tensor kv_of_head;
  if (!flash || !groups_are_even(shape)) kv_of_head = upload(at::tensor(shape.kv_of_head, at::kLong), qkv_TQ.device());
  std::vector<at::Tensor> outputs;
  for (const AttentionRun& run : plan.runs) {
    if (run.num_rows == 0) continue;  // only texts without tokens: flash attention would have no block
    const auto rows = [&run](const at::Tensor& x) { return x.narrow(0, run.first_row, run.num_rows); };
    const at::Tensor q = rows(q_THE);
    at::Tensor k, v;
    if (run.slots_N.defined() && input.keys.defined()) {
      std::tie(k, v) = gathered_keys(input.keys, input.values, run.slots_N, queue);
    } else if (run.slots_N.defined()) {
      k = k_TKE.index_select(0, run.slots_N);
      v = v_TKV.index_select(0, run.slots_N);
    } else {
      k = rows(k_TKE);
      v = rows(v_TKV);
    }
    if (kv_of_head.defined()) {
      k = k.index_select(1, kv_of_head);
      v = v.index_select(1, kv_of_head);
    }
    attend_run(run, shape, q, k, v, flash, input.terms, outputs);
  }
  const at::Tensor all = outputs.size() == 1 ? outputs[0] : at::cat(outputs, 0);
  return all.reshape({T, H * V}).contiguous();
}

}  // namespace magister::gpu
