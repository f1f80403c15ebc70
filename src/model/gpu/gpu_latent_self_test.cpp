// Weights of latent attention, head by head, and the chosen keys as masks.
#include "model/gpu/gpu_latent_self_test.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

namespace magister::gpu {

void add_plain_latents(const GpuLayer& layer, AttentionWeights& weights, const Queue& queue) {
  const auto widened = [&](const GpuLinear& linear) -> Linear {
    return {plain_weight(linear, at::kFloat, queue), linear.bias_N};
  };
  const GpuLatent& latent = *layer.latent;
  const LatentConfig& config = *layer.shape.latent;
  LatentWeights& plain = weights.latent.emplace();
  if (latent.q_up_proj.outputs > 0) plain.q_up_proj = widened(latent.q_up_proj);
  const at::Tensor up_HNC =
      latent.up_proj.weight_NK.to(at::kFloat).view({layer.shape.heads, config.nope_dim + config.value_dim, -1});
  for (std::int64_t head = 0; head < layer.shape.heads; ++head) {
    plain.key_up.push_back({up_HNC[head].narrow(0, 0, config.nope_dim).t(), {}});
    plain.value_up.push_back({up_HNC[head].narrow(0, config.nope_dim, config.value_dim), {}});
  }
  if (!latent.indexer) return;
  IndexerWeights indexer{widened(latent.indexer->q_proj),
                         widened(latent.indexer->k_proj),
                         {latent.indexer->norm_E, {}, true, latent.indexer->norm_bias_E},
                         widened(latent.indexer->head_proj)};
  weights.indexer.emplace(config, std::move(indexer));
}

KeysAndValues seen_keys(const PackedBatch& batch, const SparseRows& sparse) {
  KeysAndValues seen;
  const at::Tensor chosen_Tk = sparse.chosen_Tk.cpu();
  for (std::int64_t s = 0; s < batch.num_sequences(); ++s) {
    const std::int64_t begin = batch.cu_seqlens[s], length = batch.cu_seqlens[s + 1] - begin;
    at::Tensor visible_LL = at::zeros({length, length}, at::kBool);
    for (std::int64_t row = 0; row < length; ++row) {
      const std::int64_t count = std::min(row + 1, chosen_Tk.size(1));
      visible_LL[row].index_fill_(0, chosen_Tk[begin + row].narrow(0, 0, count).to(at::kLong) - begin, true);
    }
    seen.visible_LL.push_back(visible_LL.to(sparse.chosen_Tk.device()));
  }
  return seen;
}

}  // namespace magister::gpu
