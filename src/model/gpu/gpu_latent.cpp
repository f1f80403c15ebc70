// The two ways of latent attention on a GPU; see gpu_latent.h.
#include "model/gpu/gpu_latent.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "magister/core/error.h"
#include "magister/device/upload.h"
#include "model/gpu/latent_attention_kernels.h"
#include "model/gpu/latent_kernels.h"
#include "model/gpu/product.h"

namespace magister::gpu {
namespace {

constexpr auto kEps = static_cast<float>(LatentConfig::kNormEps);

// Queries of all heads, [T, H E]. queries_TL: the short vector after its norm; undefined where queries are one product.
at::Tensor queries_of(const GpuLayer& layer, const at::Tensor& short_TA, const at::Tensor& queries_TL,
                      const LatentProduct& multiply) {
  if (queries_TL.defined()) return multiply(layer.latent->q_up_proj, queries_TL);
  return short_TA.narrow(1, 0, layer.shape.heads * layer.shape.head_dim);
}

}  // namespace

void queue_short_vectors(const GpuLayer& layer, const LatentRows& rows, const at::Tensor& queries_TL,
                         const at::Tensor& tokens_TW, const Queue& queue) {
  const LatentConfig& latent = *layer.shape.latent;
  with_type(rows.short_TA.scalar_type(), [&](auto a) {
    using A = decltype(a);
    const ShortVectors<A> kernel{data<A>(rows.short_TA),
                                 data<A>(queries_TL),
                                 data<A>(tokens_TW),
                                 data<float>(layer.q_norm),
                                 data<float>(layer.k_norm),
                                 data<float>(rows.cos_PR2),
                                 data<float>(rows.sin_PR2),
                                 data<std::int32_t>(rows.rows_T),
                                 data<A>(rows.pages),
                                 data<std::int64_t>(rows.slots_T),
                                 rows.short_TA.size(1),
                                 latent.query_rank,
                                 latent.rank,
                                 latent.rope_dim,
                                 kEps};
    launch(kernel, kernel.shape(rows.short_TA.size(0)), queue);
  });
}

void turn_queries(const LayerShape& shape, const LatentRows& rows, const at::Tensor& q_TQ, const at::Tensor& out_THX,
                  bool whole, const Queue& queue) {
  const LatentConfig& latent = *shape.latent;
  with_type(q_TQ.scalar_type(), [&](auto a) {
    using A = decltype(a);
    const TurnQueries<A> kernel{data<A>(q_TQ),
                                data<A>(out_THX),
                                data<float>(rows.cos_PR2),
                                data<float>(rows.sin_PR2),
                                data<std::int32_t>(rows.rows_T),
                                q_TQ.stride(0),
                                shape.heads,
                                latent.nope_dim,
                                latent.rope_dim,
                                out_THX.size(2),
                                whole ? latent.nope_dim : latent.rank,
                                whole};
    launch(kernel, kernel.shape(q_TQ.size(0)), queue);
  });
}

namespace {

// Keys and values of all heads, [N, H, X] each, of tokens [N, W].
std::pair<at::Tensor, at::Tensor> expand(const GpuLayer& layer, const at::Tensor& tokens_NW, std::int64_t X,
                                         const LatentProduct& multiply, const Queue& queue) {
  const LatentConfig& latent = *layer.shape.latent;
  const std::int64_t N = tokens_NW.size(0), H = layer.shape.heads;
  const at::Tensor up_NU = multiply(layer.latent->up_proj, tokens_NW.narrow(1, 0, latent.rank).contiguous());
  at::Tensor keys_NHX = at::empty({N, H, X}, tokens_NW.options()), values_NHX = at::empty_like(keys_NHX);
  with_type(tokens_NW.scalar_type(), [&](auto a) {
    using A = decltype(a);
    const PlaceHeads<A> kernel{data<A>(up_NU),  data<A>(tokens_NW), data<A>(keys_NHX), data<A>(values_NHX), H,
                               latent.nope_dim, latent.value_dim,   latent.rank,       latent.rope_dim,     X};
    launch(kernel, kernel.shape(N), queue);
  });
  return {keys_NHX, values_NHX};
}

}  // namespace

LayerShape expanded_shape(const LayerShape& shape) {
  LayerShape expanded = shape;
  expanded.latent.reset();
  expanded.kv_heads = shape.heads;
  expanded.head_dim = (std::max(shape.head_dim, shape.latent->value_dim) + 7) / 8 * 8;
  expanded.own_value_dim = 0;
  for (std::size_t head = 0; head < expanded.kv_of_head.size(); ++head)
    expanded.kv_of_head[head] = static_cast<std::int64_t>(head);
  return expanded;
}

at::Tensor attend_latents(const GpuLayer& layer, const AttentionPlan& plan, const LatentRows& rows,
                          const LatentProduct& multiply, const Queue& queue) {
  const LayerShape shape = expanded_shape(layer.shape);
  const LatentConfig& latent = *layer.shape.latent;
  const std::int64_t T = rows.short_TA.size(0), H = shape.heads, X = shape.head_dim, W = latent.token_width();
  const at::Tensor tokens_TW = at::empty({T, W}, rows.short_TA.options()),
                   q_THX = at::empty({T, H, X}, rows.short_TA.options());
  {
    at::Tensor queries_TL;
    if (latent.query_rank > 0) queries_TL = at::empty({T, latent.query_rank}, rows.short_TA.options());
    queue_short_vectors(layer, rows, queries_TL, tokens_TW, queue);
    turn_queries(layer.shape, rows, queries_of(layer, rows.short_TA, queries_TL, multiply), q_THX, true, queue);
  }
  const bool flash = flash_takes(shape, q_THX.scalar_type(), queue);
  std::pair<at::Tensor, at::Tensor> own;  // keys and values of all rows of the pass
  std::vector<at::Tensor> outputs;
  for (const AttentionRun& run : plan.runs) {
    if (run.num_rows == 0) continue;  // only texts without tokens
    std::pair<at::Tensor, at::Tensor> heads;
    if (run.slots_N.defined() && rows.pages.defined()) {
      heads = expand(layer, rows.pages.view({-1, W}).index_select(0, run.slots_N), X, multiply, queue);
    } else {
      if (!own.first.defined()) own = expand(layer, tokens_TW, X, multiply, queue);
      const auto of_run = [&](const at::Tensor& all) {
        return run.slots_N.defined() ? all.index_select(0, run.slots_N) : all.narrow(0, run.first_row, run.num_rows);
      };
      heads = {of_run(own.first), of_run(own.second)};
    }
    attend_run(run, shape, q_THX.narrow(0, run.first_row, run.num_rows), heads.first, heads.second, flash, {}, outputs);
  }
  const at::Tensor all_THX = outputs.size() == 1 ? outputs[0] : at::cat(outputs, 0);
  return all_THX.narrow(2, 0, latent.value_dim).reshape({T, H * latent.value_dim});
}

LatentKeys latent_keys(const PackedBatch& batch, const std::vector<BlockTable>& slots, at::Device device) {
  const std::int64_t R = batch.num_sequences();
  std::int64_t longest = 1;
  for (std::int64_t r = 0; r < R; ++r) longest = std::max(longest, batch.past(r) + 1);
  const std::int64_t pages = (longest + KvPages::kSlots - 1) / KvPages::kSlots;
  at::Tensor words = at::zeros({R * (2 + pages)}, at::kInt);
  auto* const of_row = words.data_ptr<std::int32_t>();
  for (std::int64_t r = 0; r < R; ++r) {
    const BlockTable& table = slots[static_cast<std::size_t>(r)];
    MAGISTER_ASSERT(table.offset == 0 && batch.cu_seqlens[r + 1] - batch.cu_seqlens[r] == 1);
    of_row[r] = static_cast<std::int32_t>(r);
    of_row[R + r] = static_cast<std::int32_t>(batch.past(r) + 1);
    std::copy(table.pages, table.pages + batch.past(r) / KvPages::kSlots + 1, of_row + 2 * R + r * pages);
  }
  words = upload(words, device);
  return {words.narrow(0, 2 * R, R * pages).view({R, pages}), words.narrow(0, 0, R), words.narrow(0, R, R),
          latent_chunks(longest)};
}

void queue_latent_attention(const GpuLayer& layer, const LatentRows& rows, const LatentKeys& keys,
                            const LatentPlaces& places, const at::Tensor& partial, const at::Tensor& out_RV,
                            const Queue& queue) {
  const LatentConfig& latent = *layer.shape.latent;
  const GpuLatent& weights = *layer.latent;
  const at::Tensor q_RQ = places.q_RQ.defined() ? places.q_RQ : rows.short_TA;
  const std::int64_t R = q_RQ.size(0), H = layer.shape.heads, E = layer.shape.head_dim, C = latent.rank,
                     N = latent.nope_dim, V = latent.value_dim, W = latent.token_width();
  turn_queries(layer.shape, rows, q_RQ, places.q_RHW, false, queue);
  // out[r, h, n] = sum over k of x[r, h, k] * weight[h, n, k], with `next` numbers of the weight from head to head.
  const auto multiply = [&](const Bf16* weight, std::int64_t outputs, std::int64_t inputs, std::int64_t next,
                            const at::Tensor& x, std::int64_t x_next, const at::Tensor& out, std::int64_t out_next) {
    StoredWeight stored;
    stored.rows = reinterpret_cast<const unsigned char*>(weight);
    stored.row_bytes = 2 * inputs;
    stored.N = static_cast<int>(outputs);
    stored.K = static_cast<int>(inputs);
    head_products(
        {stored, data<Bf16>(x), x.stride(0), nullptr, out.data_ptr(), out.stride(0), static_cast<int>(R), false},
        {2 * next, x_next, 2 * out_next, static_cast<int>(H)}, queue);
  };
  multiply(data<Bf16>(weights.key_up_HCN), C, N, C * N, q_RQ, E, places.q_RHW, W);
  float* const sums = data<float>(partial);
  const LatentArguments arguments{data<Bf16>(places.q_RHW),
                                  data<Bf16>(rows.pages),
                                  data<std::int32_t>(keys.table_RP),
                                  data<std::int32_t>(keys.sequence_R),
                                  data<std::int32_t>(keys.visible_R),
                                  data<Bf16>(places.sums_RHC),
                                  keys.table_RP.defined() ? keys.table_RP.size(1) : 0,
                                  sums,
                                  sums + R * H * keys.chunks * C,
                                  static_cast<int>(R),
                                  static_cast<int>(H),
                                  static_cast<int>(C),
                                  static_cast<int>(W),
                                  static_cast<int>(keys.chunks),
                                  layer.shape.attention_scale,
                                  data<std::int32_t>(keys.places_Rk),
                                  keys.places_Rk.defined() ? keys.places_Rk.size(1) : 0};
  start(LatentAttention{arguments}, queue);
  start(CombineLatents{arguments}, queue);
  multiply(data<Bf16>(weights.up_proj.weight_NK) + N * C, V, C, (N + V) * C, places.sums_RHC, C, out_RV, V);
}

at::Tensor decode_latents(const GpuLayer& layer, const LatentKeys& keys, const LatentRows& rows,
                          const LatentProduct& multiply, const Queue& queue) {
  const std::int64_t R = rows.short_TA.size(0);
  LatentPlaces places(layer.shape, R, rows.short_TA.device());
  queue_short_vectors(layer, rows, places.queries_RL, places.tokens_RW, queue);
  if (places.q_RQ.defined()) places.q_RQ = queries_of(layer, rows.short_TA, places.queries_RL, multiply);
  const at::Tensor out_RV = at::empty({R, layer.shape.heads * layer.shape.value_dim()}, rows.short_TA.options()),
                   partial = at::empty({latent_scratch(R, layer.shape, keys.chunks)},
                                       rows.short_TA.options().dtype(at::kFloat));
  queue_latent_attention(layer, rows, keys, places, partial, out_RV, queue);
  return out_RV;
}

at::Tensor latent_attention(const GpuLayer& layer, const AttentionPlan& plan, const LatentKeys& keys,
                            const LatentRows& rows, const LatentProduct& multiply, const Queue& queue) {
  return keys.defined() ? decode_latents(layer, keys, rows, multiply, queue)
                        : attend_latents(layer, plan, rows, multiply, queue);
}

}  // namespace magister::gpu
