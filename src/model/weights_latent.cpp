// Weights of latent attention (MLA) on one shard: products onto the short vectors whole, heads divided. Rotated rows
// are stored as halves, whatever the file's order. The indexer is whole on every shard: all must choose the same keys.
// Source: transformers' DeepseekV3Attention and DeepseekV32Indexer.
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

Linear WeightSource::load_index_q_proj(std::int64_t layer) {
  const LatentConfig& latent = *description_.config.latent;
  const IndexerConfig& indexer = *latent.indexer;
  std::vector<RowBlock> blocks;
  for (std::int64_t head = 0; head < indexer.heads; ++head) add_index_rows(blocks, names_of(layer).index_q_proj, head);
  const auto L = static_cast<std::uint64_t>(latent.query_rank);
  return load_product(blocks, indexer.heads * indexer.head_dim, {0, L}, L);
}

Linear WeightSource::load_index_k_proj(std::int64_t layer) {
  std::vector<RowBlock> blocks;
  add_index_rows(blocks, names_of(layer).index_k_proj, 0);
  const auto D = static_cast<std::uint64_t>(description_.config.hidden_size);
  return load_product(blocks, description_.config.latent->indexer->head_dim, {0, D}, D);
}

void WeightSource::add_index_rows(std::vector<RowBlock>& blocks, const std::string& name, std::int64_t head) const {
  const LatentConfig& latent = *description_.config.latent;
  const std::int64_t E = latent.indexer->head_dim, R = latent.rope_dim;
  const auto row = [&](std::int64_t number) { return static_cast<std::uint64_t>(head * E + number); };
  blocks.push_back({name, {row(0), row(R)}, head * E, latent.indexer->rope_pairs});
  if (E > R) blocks.push_back({name, {row(R), row(E)}, head * E + R});
}

BlockNorms WeightSource::load_index_k_norm(std::int64_t layer) {
  const LatentConfig& latent = *description_.config.latent;
  const IndexRange all{0, static_cast<std::uint64_t>(latent.indexer->head_dim)};
  BlockNorms norm{
      load_vector(names_of(layer).index_k_norm, all), {}, true, load_vector(names_of(layer).index_k_norm_bias, all)};
  for (at::Tensor* numbers : {&norm.input_D, &norm.input_bias_D}) {
    at::Tensor rotated_R = numbers->narrow(0, 0, latent.rope_dim);
    if (latent.indexer->rope_pairs) rotated_R.copy_(rotated_R.clone().view({-1, 2}).t().reshape({-1}));
  }
  return norm;
}

Linear WeightSource::load_index_weights(std::int64_t layer) {
  const std::int64_t heads = description_.config.latent->indexer->heads, D = description_.config.hidden_size;
  at::Tensor out_HD = allocate({heads, D}, at::kFloat);
  read(names_of(layer).index_weights, {0, static_cast<std::uint64_t>(heads)}, {0, static_cast<std::uint64_t>(D)},
       out_HD);
  return {out_HD, {}};
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
