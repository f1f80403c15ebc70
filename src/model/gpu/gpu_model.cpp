// The order of a pass; the arithmetic is in the kernels, in gpu_linear.cpp and in gpu_attention.cpp.
#include "model/gpu/gpu_model.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "magister/core/error.h"
#include "magister/model/rope.h"
#include "model/gpu/elementwise_kernels.h"
#include "model/transformer_layers.h"

namespace magister::gpu {
namespace {

// body(A()) with the type that dtype stands for.
template <typename Body>
void with_type(at::ScalarType dtype, const Body& body) {
  if (dtype == at::kBFloat16) return body(Bf16());
  MAGISTER_ASSERT(dtype == at::kFloat);
  body(float());
}

template <typename A>
A* data(const at::Tensor& tensor) { return tensor.defined() ? static_cast<A*>(tensor.data_ptr()) : nullptr; }

at::Tensor on_device(const at::Tensor& tensor, at::Device device) { return tensor.defined() ? tensor.to(device) : tensor; }

}  // namespace

GpuModel::GpuModel(const ModelConfig& config, const Partition& partition, at::ScalarType dtype, const Queue& queue, ProcessGroup& group)
    : config_(config), partition_(partition), dtype_(dtype), queue_(queue),
      device_(queue.on_host() ? at::Device(at::kCPU) : at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(queue.device))), group_(group) {
  MAGISTER_CHECK(dtype == at::kBFloat16 || dtype == at::kFloat, ExitCode::kConfig,
                 "model.dtype: f16 on GPUs (their path computes in bf16 or f32); choose auto, bf16 or f32");
}

void GpuModel::load(WeightSource& source, bool tied) {
  const auto product_of = [&](const Linear& linear) { return to_device(linear, device_); };
  const auto vector_of = [&](const at::Tensor& vector) { return on_device(vector, device_); };
  const at::Tensor table_vD = source.load_embeddings();
  embedding_vD_ = table_vD.to(device_);
  for (std::int64_t i = 0; i < config_.num_hidden_layers; ++i) {
    GpuLayer layer;
    layer.shape = shape_of(config_, partition_, i);
    layer.input_layernorm_D = vector_of(source.load_input_layernorm(i));
    layer.post_attention_layernorm_D = vector_of(source.load_post_attention_layernorm(i));
    layer.q_norm_E = vector_of(source.load_q_norm(i));
    layer.k_norm_E = vector_of(source.load_k_norm(i));
    layer.qkv_proj = product_of(source.load_qkv_proj(i));
    layer.o_proj = product_of(source.load_o_proj(i));
    layer.gate_up_proj = product_of(source.load_gate_up_proj(i));
    layer.down_proj = product_of(source.load_down_proj(i));
    layers_.push_back(std::move(layer));
  }
  norm_D_ = vector_of(source.load_norm());
  head_.weight_NK = tied ? embedding_vD_ : source.load_lm_head(table_vD).to(device_);
  head_.inputs = config_.hidden_size;
  head_.outputs = head_.weight_NK.size(0);
}

std::uint64_t GpuModel::weight_bytes() const {
  std::uint64_t bytes = embedding_vD_.nbytes() + norm_D_.nbytes() + (head_.weight_NK.is_same(embedding_vD_) ? 0 : head_.num_bytes());
  for (const GpuLayer& layer : layers_) {
    for (const GpuLinear* linear : {&layer.qkv_proj, &layer.o_proj, &layer.gate_up_proj, &layer.down_proj}) bytes += linear->num_bytes();
    for (const at::Tensor& vector : {layer.input_layernorm_D, layer.post_attention_layernorm_D, layer.q_norm_E, layer.k_norm_E}) {
      bytes += vector.defined() ? vector.nbytes() : 0;
    }
  }
  return bytes;
}

KvCache GpuModel::make_cache(std::int64_t num_pages) const {
  KvCache cache;
  cache.num_pages = num_pages;
  const auto options = at::TensorOptions().dtype(dtype_).device(device_);
  for (const GpuLayer& layer : layers_) {
    const std::vector<std::int64_t> sizes = {num_pages + 1, layer.shape.kv_heads, KvPages::kSlots, layer.shape.head_dim};
    cache.keys.push_back(at::zeros(sizes, options));
    cache.values.push_back(at::zeros(sizes, options));
  }
  return cache;
}

// The shared table stays on the device; sequences whose length changes the frequencies bring their own rows behind it.
void GpuModel::place_rope_rows(GpuPass& pass) {
  const PackedBatch& batch = pass.batch;
  std::int64_t longest = 1;
  const auto length_of = [&](std::int64_t s) { return batch.past(s) + batch.cu_seqlens[s + 1] - batch.cu_seqlens[s]; };
  for (std::int64_t s = 0; s < batch.num_sequences(); ++s) longest = std::max(longest, length_of(s));
  if (!rope_cos_PE2_.defined() || rope_cos_PE2_.size(0) < longest) {
    const RopeTable table = rope_table(config_, 0, (longest + 1023) / 1024 * 1024);
    rope_cos_PE2_ = table.cos_PE2.to(device_);
    rope_sin_PE2_ = table.sin_PE2.to(device_);
  }
  std::vector<at::Tensor> cos = {rope_cos_PE2_}, sin = {rope_sin_PE2_};
  at::Tensor rows_T = at::empty({batch.num_tokens()}, at::kInt);
  auto* row = rows_T.data_ptr<std::int32_t>();
  std::int64_t first_own = rope_cos_PE2_.size(0);
  for (std::int64_t s = 0; s < batch.num_sequences(); ++s) {
    const std::int64_t length = length_of(s);
    std::int64_t first = 0;
    if (rope_needs_own_table(config_, length)) {
      refuse_dynamic_rope_with_cache(batch, config_, length);
      const RopeTable own = rope_table(config_, length, length);
      cos.push_back(own.cos_PE2.to(device_));
      sin.push_back(own.sin_PE2.to(device_));
      first = std::exchange(first_own, first_own + length);
    }
    for (std::int64_t position = batch.past(s); position < length; ++position) *row++ = static_cast<std::int32_t>(first + position);
  }
  pass.cos_PE2 = cos.size() == 1 ? cos[0] : at::cat(cos, 0);
  pass.sin_PE2 = sin.size() == 1 ? sin[0] : at::cat(sin, 0);
  pass.rope_rows_T = rows_T.to(device_);
}

GpuPass GpuModel::make_pass(const PackedBatch& batch, const std::vector<SequenceSlots>& slots) {
  GpuPass pass{batch, plan_attention(batch, slots, device_), {}, {}, {}, {}, {}, {}};
  pass.ids_T = batch.token_ids_T.to(device_);
  place_rope_rows(pass);
  if (!slots.empty()) {
    at::Tensor slots_T = at::empty({batch.num_tokens()}, at::kLong);
    auto* slot = slots_T.data_ptr<std::int64_t>();
    for (std::int64_t s = 0; s < batch.num_sequences(); ++s) {
      const SequenceSlots& sequence = slots[static_cast<std::size_t>(s)];
      const std::int64_t first = sequence.offset + batch.past(s), rows = batch.cu_seqlens[s + 1] - batch.cu_seqlens[s];
      for (std::int64_t j = first; j < first + rows; ++j) {
        *slot++ = sequence.pages[j / KvPages::kSlots] * KvPages::kSlots + j % KvPages::kSlots;
      }
    }
    pass.slots_T = slots_T.to(device_);
  }
  pass.hidden_TD = at::empty({batch.num_tokens(), config_.hidden_size}, at::TensorOptions().dtype(at::kFloat).device(device_));
  return pass;
}

void GpuModel::embed(GpuPass& pass) const {
  with_type(dtype_, [&](auto a) {
    using A = decltype(a);
    const EmbedRows<A> kernel{data<A>(embedding_vD_), pass.ids_T.const_data_ptr<std::int32_t>(), pass.hidden_TD.data_ptr<float>(),
                              config_.hidden_size, static_cast<std::int64_t>(partition_.vocab.begin),
                              static_cast<std::int64_t>(partition_.vocab.end)};
    launch(kernel, kernel.shape(pass.hidden_TD.size(0)), queue_);
  });
  if (group_.tp_size() > 1) group_.all_reduce_sum(pass.hidden_TD);
}

at::Tensor GpuModel::norm(GpuPass& pass, const at::Tensor& delta_TD, const at::Tensor& weight_D) const {
  at::Tensor out_TD = at::empty(pass.hidden_TD.sizes(), pass.hidden_TD.options().dtype(dtype_));
  with_type(dtype_, [&](auto a) {
    using A = decltype(a);
    const AddRmsNorm<A> kernel{pass.hidden_TD.data_ptr<float>(), data<A>(delta_TD), weight_D.const_data_ptr<float>(), data<A>(out_TD),
                               config_.hidden_size, static_cast<float>(config_.rms_norm_eps)};
    launch(kernel, kernel.shape(out_TD.size(0)), queue_);
  });
  return out_TD;
}

at::Tensor GpuModel::attention(const GpuLayer& layer, const GpuPass& pass, const at::Tensor& normed_TD, const at::Tensor& keys,
                               const at::Tensor& values) const {
  const LayerShape& shape = layer.shape;
  const at::Tensor qkv_TQ = product(layer.qkv_proj, normed_TD, dtype_, queue_);
  with_type(dtype_, [&](auto a) {
    using A = decltype(a);
    const RotateHeads<A> kernel{data<A>(qkv_TQ), pass.cos_PE2.const_data_ptr<float>(), pass.sin_PE2.const_data_ptr<float>(),
                                pass.rope_rows_T.const_data_ptr<std::int32_t>(), data<float>(layer.q_norm_E), data<float>(layer.k_norm_E),
                                data<A>(keys), data<A>(values), data<std::int64_t>(pass.slots_T), shape.heads, shape.kv_heads,
                                shape.head_dim, shape.rms_norm_eps};
    launch(kernel, kernel.shape(qkv_TQ.size(0)), queue_);
  });
  return product(layer.o_proj, attend(pass.attention, shape, qkv_TQ, keys, values, queue_), dtype_, queue_);
}

at::Tensor GpuModel::mlp(const GpuLayer& layer, const at::Tensor& normed_TD) const {
  const at::Tensor gate_up_TF2 = product(layer.gate_up_proj, normed_TD, dtype_, queue_);
  const std::int64_t T = normed_TD.size(0), F = layer.shape.mlp;
  at::Tensor middle_TF = at::empty({T, F}, normed_TD.options());
  with_type(dtype_, [&](auto a) {
    using A = decltype(a);
    const SiluMultiply<A> kernel{data<A>(gate_up_TF2), data<A>(middle_TF), F};
    launch(kernel, kernel.shape(T), queue_);
  });
  return product(layer.down_proj, middle_TF, dtype_, queue_);
}

at::Tensor GpuModel::summed(at::Tensor partial_TD) const {
  if (group_.tp_size() > 1) group_.all_reduce_sum(partial_TD);
  return partial_TD;
}

at::Tensor GpuModel::forward(const PackedBatch& batch, const std::vector<SequenceSlots>& slots, KvCache* cache) {
  if (batch.num_tokens() == 0) return at::empty({0, config_.hidden_size}, at::TensorOptions().dtype(dtype_).device(device_));
  GpuPass pass = make_pass(batch, slots);
  embed(pass);
  at::Tensor delta_TD;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const GpuLayer& layer = layers_[i];
    const at::Tensor keys = cache == nullptr ? at::Tensor() : cache->keys[i], values = cache == nullptr ? at::Tensor() : cache->values[i];
    delta_TD = summed(attention(layer, pass, norm(pass, delta_TD, layer.input_layernorm_D), keys, values));
    delta_TD = summed(mlp(layer, norm(pass, delta_TD, layer.post_attention_layernorm_D)));
  }
  return norm(pass, delta_TD, norm_D_);
}

}  // namespace magister::gpu
