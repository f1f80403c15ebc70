// The choice of keys by an indexer: ties, tiles, and attention over chosen keys against plain ATen code, with the same
// bits whole, in parts and token by token; and what config.json says of it.
#include "model/cpu/indexer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>

#include "magister/model/parameter_table.h"
#include "magister/model/plain_attention.h"
#include "magister/model/transformer.h"
#include "model/config_folder.h"
#include "model/cpu/attention.h"

namespace magister {
namespace indexer_test {

std::vector<std::int32_t> best(const std::vector<float>& scores, std::int64_t k) {
  std::vector<std::int32_t> out(static_cast<std::size_t>(k), -1);
  choose_best(scores.data(), static_cast<std::int64_t>(scores.size()), k, out.data());
  return out;
}

TEST(ChooseBest, OfEqualScoresTheLowerPositionsComeFirst) {
  using Positions = std::vector<std::int32_t>;
  EXPECT_EQ(best({0, 3, 1, 3, 2, 3}, 2), (Positions{1, 3}));
  EXPECT_EQ(best({0, 3, 1, 3, 2, 3}, 3), (Positions{1, 3, 5}));
  EXPECT_EQ(best({0, 3, 1, 3, 2, 3}, 4), (Positions{1, 3, 4, 5}));
  EXPECT_EQ(best({0, 0, 0, 0}, 3), (Positions{0, 1, 2}));
  EXPECT_EQ(best({-1, 0.0f, -0.0f, -2, 0}, 2), (Positions{1, 2})) << "both zeros are equal";
  const float nan = std::numeric_limits<float>::quiet_NaN(), least = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(best({nan, 1, nan, -5}, 2), (Positions{1, 3})) << "a NaN counts as the least";
  EXPECT_EQ(best({nan, least, nan}, 2), (Positions{0, 1}));
}

TEST(ChosenKeys, PlainCodeChoosesTheSame) {
  at::manual_seed(5);
  for (const std::int64_t length : {9, 40}) {
    // Few values: most scores are equal to others.
    const at::Tensor q = at::randint(-1, 2, {length, 3, 4}).to(at::kFloat),
                     k = at::randint(-1, 2, {length, 4}).to(at::kFloat),
                     weights = at::randint(-1, 3, {length, 3}).to(at::kFloat);
    const at::Tensor seen_LL = chosen_keys(q, k, weights, 8);
    ASSERT_TRUE(seen_LL.defined());
    for (std::int64_t row = 0; row < length; ++row) {
      at::Tensor expected = at::zeros({length}, at::kBool);
      if (row < 8) {
        expected.narrow(0, 0, row + 1).fill_(true);
      } else {
        const at::Tensor scores = at::mv(at::relu(at::matmul(k.narrow(0, 0, row + 1), q[row].t())), weights[row]);
        std::vector<std::int32_t> keys(8);
        choose_best(scores.const_data_ptr<float>(), row + 1, 8, keys.data());
        expected.index_fill_(0, at::tensor(keys, at::kLong), true);
      }
      EXPECT_TRUE(at::equal(seen_LL[row], expected)) << "row " << row << " of " << length;
    }
  }
  EXPECT_FALSE(chosen_keys(at::randn({8, 3, 4}), at::randn({8, 4}), at::randn({8, 3}), 8).defined());
}

// Attention of three heads over latents, with and without an indexer of its own.
struct Block {
  static constexpr std::int64_t kHidden = 40, kPositions = 200;
  LayerShape shape;
  std::unique_ptr<Attention> choosing, following;
  at::Tensor cos_P2 = at::randn({kPositions, 2}), sin_P2 = at::randn({kPositions, 2});

  Block() {
    LatentConfig latent{.query_rank = 10, .rank = 12, .nope_dim = 6, .rope_dim = 4, .value_dim = 5};
    latent.indexer = IndexerConfig{.heads = 11, .head_dim = 7, .top_k = 6};
    shape.hidden_size = kHidden;
    shape.heads = 3;
    shape.kv_heads = 1;
    shape.head_dim = 10;
    shape.rotary_dim = 4;
    shape.kv_of_head = {0, 0, 0};
    shape.latent = latent;
    shape.attention_scale = 0.3f;
    shape.has_indexer = true;
    choosing = std::make_unique<Attention>(shape, weights(true));
    LayerShape without = shape;
    without.has_indexer = false;
    following = std::make_unique<Attention>(without, weights(false));
  }

  AttentionWeights weights(bool chooses) const {
    const auto linear = [](std::int64_t out, std::int64_t in) { return pack({at::randn({out, in}) * 0.3, {}}); };
    AttentionWeights out{{at::randn({kHidden}).abs(), {}}, linear(10 + 16, kHidden), linear(kHidden, 15), {}, {}};
    out.q_norm = at::randn({10}).abs();
    out.k_norm = at::randn({12}).abs();
    out.latent = LatentWeights{linear(30, 10), {}, {}};
    for (int head = 0; head < 3; ++head) {
      out.latent->key_up.push_back(linear(12, 6));
      out.latent->value_up.push_back(linear(5, 12));
    }
    if (chooses)
      out.indexer.emplace(*shape.latent, IndexerWeights{linear(77, 10),
                                                        linear(7, kHidden),
                                                        {at::randn({7}).abs(), {}, true, at::randn({7})},
                                                        linear(11, kHidden)});
    return out;
  }

  // Both layers read hidden_TD. pages: one of each.
  std::pair<at::Tensor, at::Tensor> run(const PackedBatch& batch, const at::Tensor& hidden_TD,
                                        const std::vector<BlockTable>& sequences, std::vector<KvPages>& pages) const {
    ThreadPool pool(2);
    const std::int64_t T = batch.num_tokens();
    RopeRows rope;
    for (std::int64_t t = 0; t < T; ++t) {
      const std::int64_t position = batch.positions_T[t].item<std::int64_t>();
      rope.cos.push_back(cos_P2.const_data_ptr<float>() + 2 * position);
      rope.sin.push_back(sin_P2.const_data_ptr<float>() + 2 * position);
    }
    LayerBuffers buffers(batch, sequences, shape, 1);
    at::Tensor outs[2];
    for (std::size_t layer = 0; layer < 2; ++layer) {
      const Attention& attention = layer == 0 ? *choosing : *following;
      buffers.scratch.fill_(std::numeric_limits<float>::quiet_NaN());  // nothing stale may be read
      outs[layer] = at::empty({T, kHidden});
      attention.project_qkv(hidden_TD.const_data_ptr<float>(), batch, 0, T, rope, pages[layer], buffers, 0);
      attention.choose_keys(batch, pages[layer], buffers, pool);
      for (const AttentionTile& tile : attention_tiles(batch, shape)) attention.attend(tile, pages[layer], buffers, 0);
      attention.project_output(0, T, buffers, outs[layer].data_ptr<float>(), false);
    }
    return {outs[0], outs[1]};
  }
  std::vector<KvPages> pages(std::int64_t count) const {
    std::vector<KvPages> both;
    both.push_back(pages_for(choosing->shape(), count));
    both.push_back(pages_for(following->shape(), count));
    return both;
  }
};

PackedBatch batch_of(const std::vector<std::int64_t>& lengths, std::vector<std::int64_t> past = {}) {
  std::vector<std::vector<TokenId>> sequences;
  for (const std::int64_t length : lengths) sequences.emplace_back(static_cast<std::size_t>(length), 0);
  return pack_sequences(sequences, std::move(past));
}

TEST(SparseAttention, EqualsPlainCode) {
  at::manual_seed(3);
  const Block block;
  const PackedBatch batch = batch_of({1, 6, 7, 60, 130});
  const at::Tensor hidden_TD = at::randn({batch.num_tokens(), Block::kHidden});
  const BatchPages slots(batch);
  std::vector<KvPages> pages = block.pages(slots.num_pages());
  const auto [chosen, followed] = block.run(batch, hidden_TD, slots.sequences, pages);
  const at::Tensor rows = batch.positions_T.to(at::kLong), cos = block.cos_P2.index_select(0, rows),
                   sin = block.sin_P2.index_select(0, rows);
  KeysAndValues choice;
  const at::Tensor plain = block.choosing->reference(hidden_TD, batch, cos, sin, {}, &choice);
  EXPECT_LE((chosen - plain).abs().max().item<double>(), 2e-4);
  ASSERT_EQ(choice.visible_LL.size(), 5u);
  EXPECT_FALSE(choice.visible_LL[1].defined());
  EXPECT_TRUE((choice.visible_LL[4].sum(1).narrow(0, 6, 124) == 6).all().item<bool>());
  // The next layer sees the same keys; with all keys its output is another.
  const at::Tensor next = block.following->reference(hidden_TD, batch, cos, sin, {}, &choice),
                   dense = block.following->reference(hidden_TD, batch, cos, sin);
  EXPECT_LE((followed - next).abs().max().item<double>(), 2e-4);
  EXPECT_GT((followed - dense).abs().max().item<double>(), 0.1);
}

// The bits of a row are the same however its sequence is cut into passes and wherever its pages are.
TEST(SparseAttention, BitsDoNotDependOnTheWay) {
  at::manual_seed(4);
  const Block block;
  const std::vector<std::int64_t> lengths = {1, 7, 100, 130};
  const PackedBatch whole = batch_of(lengths);
  const at::Tensor hidden_TD = at::randn({whole.num_tokens(), Block::kHidden});
  const BatchPages slots(whole);
  std::vector<KvPages> pages = block.pages(slots.num_pages());
  const auto [chosen, followed] = block.run(whole, hidden_TD, slots.sequences, pages);
  std::vector<std::vector<std::int32_t>> tables = {{0}, {1}, {7, 2, 5}, {9, 8, 3, 4}};
  for (const std::int64_t step : {1, 40}) {
    std::vector<KvPages> cache = block.pages(10);
    for (std::int64_t from = 0; from < 130; from += step) {
      std::vector<std::int64_t> parts, past, rows;
      std::vector<BlockTable> sequences;
      for (std::size_t s = 0; s < lengths.size(); ++s) {
        if (from >= lengths[s]) continue;
        parts.push_back(std::min(step, lengths[s] - from));
        past.push_back(from);
        sequences.push_back({tables[s].data(), s == 2 ? 11 : 0});
        for (std::int64_t i = 0; i < parts.back(); ++i) rows.push_back(whole.cu_seqlens[s] + from + i);
      }
      const at::Tensor rows_R = at::tensor(rows, at::kLong);
      const auto [first, second] =
          block.run(batch_of(parts, past), hidden_TD.index_select(0, rows_R), sequences, cache);
      ASSERT_TRUE(at::equal(first, chosen.index_select(0, rows_R))) << "steps of " << step << ", from " << from;
      ASSERT_TRUE(at::equal(second, followed.index_select(0, rows_R))) << "steps of " << step << ", from " << from;
    }
  }
}

using IndexerFields = Folder;

json config_of(const char* type, const char* more = "{}") {
  json config = base_config("llama");
  config.merge_patch(json::parse(R"({"architectures": null, "num_key_value_heads": 4, "num_hidden_layers": 5,
    "head_dim": null, "kv_lora_rank": 8, "q_lora_rank": 6, "qk_nope_head_dim": 4, "qk_rope_head_dim": 2,
    "v_head_dim": 3, "n_routed_experts": 8, "moe_intermediate_size": 16, "num_experts_per_tok": 2, "n_group": 1,
    "topk_group": 1})"));
  config["model_type"] = type;
  config.merge_patch(json::parse(more));
  return config;
}

std::vector<bool> choosing(const ModelConfig& config) {
  std::vector<bool> layers;
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) layers.push_back(config.chooses_keys(i));
  return layers;
}

TEST_F(IndexerFields, SizesOfTheIndexerAndLayersThatShareAChoice) {
  using Layers = std::vector<bool>;
  const ModelConfig config = describe(config_of("deepseek_v32", R"({"index_topk_freq": 3})"));
  EXPECT_EQ(config.latent->indexer->heads, 64);
  EXPECT_EQ(config.latent->indexer->head_dim, 128);
  EXPECT_EQ(config.latent->indexer->top_k, 2048);
  EXPECT_FALSE(config.latent->indexer->rope_pairs);
  EXPECT_EQ(choosing(config), Layers(5, true)) << "the class does not know index_topk_freq";
  EXPECT_EQ(config.layer_is_sparse, (Layers{false, false, false, true, true}));
  const auto glm = [&](const char* more) { return describe(config_of("glm_moe_dsa", more)); };
  EXPECT_EQ(glm("{}").latent->indexer->heads, 32);
  EXPECT_TRUE(glm("{}").latent->indexer->rope_pairs);
  EXPECT_EQ(choosing(glm("{}")), Layers(5, true));
  // As transformers' GlmMoeDsaConfig derives them.
  EXPECT_EQ(choosing(glm(R"({"index_topk_freq": 2})")), (Layers{true, true, false, true, false}));
  EXPECT_EQ(choosing(glm(R"({"index_topk_freq": 4, "index_skip_topk_offset": 1})")),
            (Layers{true, false, false, false, true}));
  EXPECT_EQ(choosing(glm(R"({"index_topk_freq": 2, "index_topk_pattern": "FSSFS"})")),
            (Layers{true, false, false, true, false}));
  EXPECT_EQ(choosing(glm(R"({"index_topk_pattern": "FFFFF",
                             "indexer_types": ["full", "shared", "shared", "shared", "full"]})")),
            (Layers{true, false, false, false, true}));
  EXPECT_EQ(glm(R"({"mlp_layer_types": ["sparse", "dense", "sparse", "dense", "sparse"]})").layer_is_sparse,
            (Layers{true, false, true, false, true}));
}

// A page of 48 tokens: a latent and a rotated key in every layer, and a key of the indexer where there is one.
TEST_F(IndexerFields, PagesCountTheKeysOfIndexers) {
  const ModelConfig config =
      describe(config_of("glm_moe_dsa", R"({"index_topk_freq": 4, "index_skip_topk_offset": 1})"));
  EXPECT_EQ(kv_page_bytes(config, partition_for(config, 1, 2)), 4u * 48 * (5 * (8 + 2) + 2 * 128));
  std::uint64_t rows = 0;
  for (std::int64_t i = 0; i < 5; ++i) {
    for (const LayerParameter& row : layer_parameters(config, i)) rows += row.is_of_indexer() ? 1 : 0;
  }
  EXPECT_EQ(rows, 2u * 5);
}

TEST_F(IndexerFields, WhatOtherProgramsWouldComputeOtherwiseIsRefused) {
  const auto refused = [&](const char* type, const char* more, const std::vector<std::string>& words) {
    expect_refused([&] { describe(config_of(type, more)); }, words);
  };
  refused("glm_moe_dsa", R"({"index_topk_pattern": "SFFFF"})", {"first is shared"});
  refused("glm_moe_dsa", R"({"index_topk_pattern": "FFFF"})", {"4 kinds of indexers for 5 layers"});
  refused("glm_moe_dsa", R"({"index_topk_pattern": "FFXFF"})", {"X", "full, shared"});
  refused("glm_moe_dsa", R"({"indexer_rope_interleave": false})", {"indexer_rope_interleave is false"});
  refused("deepseek_v32", R"({"indexer_rope_interleave": true})", {"indexer_rope_interleave is true"});
  refused("deepseek_v32", R"({"rope_interleave": false})", {"rope_interleave is false"});
  refused("deepseek_v32", R"({"layer_types": ["full_attention"]})", {"full_attention", "indexed_attention"});
  refused("deepseek_v32", R"({"index_head_dim": 1})", {"index_head_dim"});
  refused("deepseek_v32", R"({"num_experts": 4})", {"num_experts is not n_routed_experts 8"});
}

}  // namespace indexer_test
}  // namespace magister
