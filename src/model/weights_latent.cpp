// Weights of latent attention (MLA) on one shard: products onto the short vectors whole, heads divided. Rotated rows
// are stored as halves, whatever the file's order.
// Source: transformers' DeepseekV3Attention.
#include <ATen/ATen.h>

#include "magister/model/weights.h"
#include "model/cpu/kept_codes.h"

namespace magister {

void WeightSource::add_latent_queries(std::vector<RowBlock>& blocks, const std::string& name) const {
  const ModelConfig& config = description_.config;
  const auto E = static_cast<std::uint64_t>(config.head_dim), N = static_cast<std::uint64_t>(config.latent->nope_dim);
  std::int64_t output = 0;
  for (std::uint64_t head = partition_.heads.begin; head < partition_.heads.end; ++head, output += config.head_dim) {
    if (N > 0) blocks.push_back({name, {head * E, head * E + N}, output});
    blocks.push_back({name,
                      {head * E + N, (head + 1) * E},
                      output + config.latent->nope_dim,
                      description_.names.interleaved_rope_rows});
  }
}

Linear WeightSource::load_latent_proj(std::int64_t layer) {
  const ModelConfig& config = description_.config;
  const LatentConfig& latent = *config.latent;
  const TensorNames::Layer& names = names_of(layer);
  const auto D = static_cast<std::uint64_t>(config.hidden_size), C = static_cast<std::uint64_t>(latent.rank),
             L = static_cast<std::uint64_t>(latent.query_rank), W = static_cast<std::uint64_t>(latent.token_width());
  const bool pairs = description_.names.interleaved_rope_rows;
  const auto queries =
      static_cast<std::int64_t>(L > 0 ? L : partition_.heads.size() * static_cast<std::uint64_t>(config.head_dim));
  std::vector<RowBlock> blocks;
  if (L > 0) {
    blocks.push_back({names.q_proj, {0, L}, 0});
  } else {
    add_latent_queries(blocks, names.q_proj);
  }
  blocks.push_back({names.k_proj, {0, C}, queries});
  blocks.push_back({names.k_proj, {C, W}, queries + latent.rank, pairs});
  Linear out = load_product(blocks, queries + latent.token_width(), {0, D}, D);
  if (names.k_bias.empty()) return out;
  out.bias_N = allocate({queries + latent.token_width()}, at::kFloat).zero_();
  if (L > 0) read(names.q_bias, {0, 1}, {0, L}, out.bias_N.narrow(0, 0, queries).unsqueeze(0));
  at::Tensor key_W = out.bias_N.narrow(0, queries, latent.token_width());
  read(names.k_bias, {0, 1}, {0, W}, key_W.unsqueeze(0));
  if (pairs) {
    at::Tensor rotated_R = key_W.narrow(0, latent.rank, latent.rope_dim);
    rotated_R.copy_(rotated_R.clone().view({-1, 2}).t().reshape({-1}));
  }
  return out;
}

Linear WeightSource::load_q_up_proj(std::int64_t layer) {
  const ModelConfig& config = description_.config;
  if (config.latent->query_rank == 0) return {};
  std::vector<RowBlock> blocks;
  add_latent_queries(blocks, names_of(layer).q_up_proj);
  const auto L = static_cast<std::uint64_t>(config.latent->query_rank);
  return load_product(blocks, static_cast<std::int64_t>(partition_.heads.size()) * config.head_dim, {0, L}, L);
}

at::Tensor WeightSource::load_latent_up_proj(std::int64_t layer) {
  const LatentConfig& latent = *description_.config.latent;
  const auto each = static_cast<std::uint64_t>(latent.nope_dim + latent.value_dim);
  const IndexRange rows{partition_.heads.begin * each, partition_.heads.end * each};
  at::Tensor out_NC = allocate({static_cast<std::int64_t>(rows.size()), latent.rank}, at::kFloat);
  read(names_of(layer).latent_up_proj, rows, {0, static_cast<std::uint64_t>(latent.rank)}, out_NC);
  return out_NC;
}

}  // namespace magister
