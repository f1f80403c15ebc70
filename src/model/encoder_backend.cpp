// The order of an encoder's pass, and the rows of its position table.
#include "model/encoder_backend.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "magister/core/error.h"

namespace magister {

at::Tensor EncoderBackend::positions_of(const PackedBatch& batch) const {
  const auto first = static_cast<std::int32_t>(config_.encoder->first_position);
  if (first == 0) return batch.positions_T;
  const std::int32_t padding = first - 1;  // id of the padding token, and row of its vector
  at::Tensor rows_T = at::empty_like(batch.positions_T);
  const auto* ids = batch.token_ids_T.const_data_ptr<std::int32_t>();
  for (std::int64_t s = 0; s < batch.num_sequences(); ++s) {
    std::int32_t next = first;
    for (std::int64_t t = batch.cu_seqlens[s]; t < batch.cu_seqlens[s + 1]; ++t)
      rows_T.data_ptr<std::int32_t>()[t] = ids[t] == padding ? padding : next++;
  }
  return rows_T;
}

at::Tensor EncoderBackend::run(const PackedBatch& batch, const std::function<bool()>& should_stop,
                               FirstNotFinite* watch) {
  if (batch.num_tokens() == 0) return at::empty({0, config_.hidden_size}, weights_.words_VD.options());
  const std::int64_t last = batch.positions_T.max().item<std::int64_t>();
  MAGISTER_CHECK(!config_.learned_positions || last < config_.max_position_embeddings, ExitCode::kConfig,
                 "a sequence of {} tokens is longer than the {} positions that this model has learned (there is no "
                 "vector for a later one); use shorter sequences",
                 last + 1, config_.max_position_embeddings);
  at::Tensor hidden_TD = embed(batch, positions_of(batch));
  if (watch != nullptr) watch->look(-1, hidden_TD);
  const Pass pass = begin_pass(batch, last + 1);
  for (std::size_t i = 0; i < weights_.layers.size(); ++i) {
    if (should_stop && should_stop()) return {};
    run_layer(i, pass, hidden_TD);
    if (watch != nullptr) watch->look(static_cast<std::int64_t>(i), hidden_TD);
  }
  return hidden_TD;
}

std::string EncoderBackend::first_not_finite(const PackedBatch& batch) {
  FirstNotFinite first(config_.num_hidden_layers);
  run(batch, {}, &first);
  return first.place();
}

at::Tensor EncoderBackend::logits(const at::Tensor& hidden_RD) const {
  at::Tensor pooled_RD = pooler_product(hidden_RD.contiguous());
  switch (config_.encoder->pooler) {
    case EncoderConfig::Pooler::kRelu:
      pooled_RD = at::relu(pooled_RD);
      break;
    case EncoderConfig::Pooler::kTanh:
      pooled_RD = at::tanh(pooled_RD);
      break;
    case EncoderConfig::Pooler::kGelu:
      pooled_RD = at::gelu(pooled_RD, "none");
      break;
  }
  return head_product(pooled_RD);
}

at::Tensor EncoderBackend::forward(const PackedBatch&, const std::vector<BlockTable>&, KvCache&) {
  fail(ExitCode::kInternal, "an encoder was asked to continue from a KV cache, which it does not have; report this");
}
KvCache EncoderBackend::make_cache(std::int64_t, std::int64_t) const {
  fail(ExitCode::kInternal, "an encoder was asked for a KV cache; report this");
}
at::Tensor EncoderBackend::forward_reference(const PackedBatch&) {
  fail(ExitCode::kInternal, "an encoder was asked for its reference pass; report this");
}

}  // namespace magister
