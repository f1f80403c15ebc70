// The arguments with which a pass calls ATen's flash attention; a few lines replace it on the CPU. Every query attends
// to its keys, and the form whose order of sums depends on the neighbours is never chosen. Source of the choice: ATen's
// flash_api.cpp (mha_varlen_fwd).
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include <algorithm>
#include <string>
#include <vector>

#include "magister/model/transformer.h"
#include "model/gpu/gpu_attention.h"
#include "model/paged_cache.h"

namespace magister::gpu {
namespace flash_attention_test {

int calls = 0, divided = 0;
std::int64_t window_of_layer = 0;

using Optional = std::optional<at::Tensor>;

// q [rows, H, E], k and v [keys, K, E] of several sequences. Queries are the last ones of their sequence's keys.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> pretended_flash(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Optional& cu_q, const Optional& cu_k,
    std::int64_t longest_q, std::int64_t longest_k, double, bool, bool, std::optional<double> scale,
    std::optional<std::int64_t> given_left, std::optional<std::int64_t> given_right, const Optional&, const Optional&) {
  EXPECT_EQ(v.sizes(), k.sizes()) << "flash attention has one size for keys and values";
  const std::int64_t left = given_left.value_or(-1);
  // Here ATen first exchanges grouped heads with queries, and then divides the keys by the number of sequences.
  if (longest_q == 1 && q.size(1) > k.size(1) && left < 0 && given_right.value_or(-1) < 0) ++divided;
  // If the window is as wide as the longest keys, ATen drops the window and uses another kernel than with a longer text
  // in the pass.
  if (window_of_layer > 0) {
    EXPECT_EQ(left, window_of_layer - 1);
    EXPECT_LT(left, longest_k);
  }
  ++calls;
  at::Tensor out = at::empty_like(q), sums_HT = at::empty({q.size(1), q.size(0)});
  const auto *rows = cu_q->const_data_ptr<std::int32_t>(), *keys = cu_k->const_data_ptr<std::int32_t>();
  for (std::int64_t s = 0; s + 1 < cu_q->size(0); ++s) {
    const std::int64_t Lq = rows[s + 1] - rows[s], Lk = keys[s + 1] - keys[s];
    EXPECT_LE(Lq, longest_q);
    EXPECT_LE(Lk, longest_k);
    const at::Tensor position = at::arange(Lk - Lq, Lk).unsqueeze(1), key = at::arange(Lk).unsqueeze(0);
    at::Tensor hidden = key > position;
    if (left >= 0) hidden = hidden.logical_or(key < position - left);
    const auto heads_first = [&](const at::Tensor& x, std::int64_t from, std::int64_t count) {
      const at::Tensor part = x.narrow(0, from, count).to(at::kDouble).transpose(0, 1);
      return part.repeat_interleave(q.size(1) / x.size(1), 0);
    };
    const at::Tensor scores =
        at::matmul(heads_first(q, rows[s], Lq), heads_first(k, keys[s], Lk).transpose(1, 2)) * *scale;
    const at::Tensor weights = at::softmax(scores.masked_fill(hidden, -INFINITY), -1);
    sums_HT.narrow(1, rows[s], Lq).copy_(at::logsumexp(scores.masked_fill(hidden, -INFINITY), -1));
    out.narrow(0, rows[s], Lq).copy_(at::matmul(weights, heads_first(v, keys[s], Lk)).transpose(0, 1));
  }
  return {out, sums_HT, {}, {}, {}};
}

TORCH_LIBRARY_IMPL(aten, CPU, library) { library.impl("_flash_attention_forward", &pretended_flash); }

class FlashAttention : public testing::TestWithParam<AttentionCase> {
 protected:
  void SetUp() override {
    at::manual_seed(17);
    const AttentionCase& c = GetParam();
    shape_.heads = c.H;
    shape_.kv_heads = c.K;
    shape_.head_dim = c.E;
    shape_.own_value_dim = c.V;
    shape_.sliding_window = c.window;
    shape_.chunked_windows = c.chunked;
    shape_.attention_scale = 1.0f / std::sqrt(static_cast<float>(c.E));
    for (int head = 0; head < c.H; ++head) shape_.kv_of_head.push_back(head * c.K / c.H);
    calls = divided = 0;
    window_of_layer = c.chunked ? 0 : c.window;
  }
  LayerShape shape_;
};

// Sequences with `past` tokens in the pages of a cache and `rows` more in this pass.
TEST_P(FlashAttention, RowsAttendToTheirKeysWhateverStandsBesideThem) {
  const AttentionCase& c = GetParam();
  const std::vector<std::int64_t> tokens = {49, 200, 97, 5, 60};
  for (const std::vector<std::int64_t>& rows :
       {std::vector<std::int64_t>{1, 1, 1, 1, 1}, {3, 200, 1, 5, 12}, {49, 200, 97, 5, 60}}) {
    const PagedCache<Bf16> cache(c, tokens, 8);
    std::vector<std::vector<TokenId>> ids;
    std::vector<std::int64_t> past;
    std::vector<BlockTable> slots;
    std::vector<at::Tensor> qkv;
    for (std::size_t s = 0; s < tokens.size(); ++s) {
      ids.emplace_back(rows[s], 1);
      past.push_back(tokens[s] - rows[s]);
      slots.push_back({cache.table.const_data_ptr<std::int32_t>() + s * 8, 0});
      const auto own = [&](const at::Tensor& all) { return all.narrow(0, past[s], rows[s]); };
      qkv.push_back(at::cat({at::randn({rows[s], c.H * c.E}).to(at::kBFloat16), own(cache.keys_S[s]).flatten(1),
                             own(cache.values_S[s]).flatten(1)},
                            1));
    }
    const PackedBatch batch = pack_sequences(ids, past);
    const at::Tensor qkv_TQ = at::cat(qkv, 0);
    const auto attended = [&](bool flash) {
      return attend(plan_attention(batch, slots, at::kCPU, false, c.chunked ? c.window : 0), shape_,
                    {qkv_TQ, cache.keys, cache.values, {}, {cache.sinks_H}}, flash, Queue{});
    };
    const at::Tensor got = attended(true), wanted = attended(false);
    EXPECT_GT(calls, 0);
    EXPECT_EQ(divided, 0) << "the order of sums depends on the neighbours";
    const double error = (got.to(at::kDouble) - wanted.to(at::kDouble)).abs().max().item<double>();
    EXPECT_LE(error, 2e-2) << error;  // both are rounded to bf16
  }
}

TEST(CappedScores, ATextWithoutTokensHasNoRows) {
  LayerShape shape;
  shape.heads = shape.kv_heads = 2;
  shape.head_dim = 8;
  shape.attention_scale = 0.3f;
  shape.kv_of_head = {0, 1};
  const at::Tensor qkv_TQ = at::randn({7, 48});
  for (const float cap : {0.0f, 20.0f}) {
    shape.attention_softcap = cap;
    const auto rows = [&](const std::vector<std::vector<TokenId>>& texts) {
      return attend(plan_attention(pack_sequences(texts), {}, at::kCPU), shape, {qkv_TQ}, false, Queue{});
    };
    EXPECT_TRUE(at::equal(rows({{1, 1, 1}, {}, {1, 1, 1, 1}, {}}), rows({{1, 1, 1}, {1, 1, 1, 1}}))) << cap;
  }
}

// Heads of whole words of 16 bytes by the kernel, others by plain indexing.
TEST(GatheredKeys, AreThoseOfTheSlots) {
  at::manual_seed(3);
  for (const at::ScalarType type : {at::kBFloat16, at::kFloat}) {
    for (const std::int64_t E : {8, 20, 128}) {
      const at::Tensor keys = at::randn({7, 3, 48, E}).to(type), values = at::randn({7, 3, 48, E}).to(type);
      const at::Tensor slots = at::randint(7 * 48, {501}, at::kLong);
      const auto [k, v] = gathered_keys(keys, values, slots, Queue{});
      const auto wanted = [&](const at::Tensor& pages) {
        return pages.transpose(1, 2).reshape({7 * 48, 3, E}).index_select(0, slots);
      };
      EXPECT_TRUE(at::equal(k, wanted(keys))) << E;
      EXPECT_TRUE(at::equal(v, wanted(values))) << E;
    }
  }
}

// Values that are narrower than keys, by the kernel and by plain indexing.
TEST(GatheredKeys, ValuesMayHaveAnotherSize) {
  for (const auto& [E, V] : {std::pair{24, 16}, {16, 32}, {24, 6}}) {
    const at::Tensor keys = at::randn({7, 3, 48, E}).to(at::kBFloat16),
                     values = at::randn({7, 3, 48, V}).to(at::kBFloat16), slots = at::randint(7 * 48, {501}, at::kLong);
    const auto [k, v] = gathered_keys(keys, values, slots, Queue{});
    EXPECT_TRUE(at::equal(k, keys.transpose(1, 2).reshape({7 * 48, 3, E}).index_select(0, slots))) << E;
    EXPECT_TRUE(at::equal(v, values.transpose(1, 2).reshape({7 * 48, 3, V}).index_select(0, slots))) << V;
  }
}

// The keys gathered at once are bounded for every pass: the memory plan relies on it.
TEST(AttentionPlans, ACachedRunGathersNoMoreKeysThanArePlanned) {
  const std::vector<std::int32_t> pages(1000, 3);
  std::vector<std::vector<TokenId>> ids;
  std::vector<std::int64_t> past;
  std::vector<BlockTable> slots;
  for (int s = 0; s < 12; ++s) {
    ids.emplace_back(s + 1, 1);
    past.push_back(s == 5 ? 40000 : 9000);
    slots.push_back({pages.data(), 0});
  }
  const AttentionPlan plan = plan_attention(pack_sequences(ids, past), slots, at::kCPU);
  std::int64_t rows = 0;
  for (const AttentionRun& run : plan.runs) {
    EXPECT_EQ(run.slots_N.size(0), run.cu_keys.back());
    EXPECT_TRUE(run.cu_keys.back() <= kMostGatheredKeys || run.cu_keys.size() == 2) << run.cu_keys.back();
    EXPECT_EQ(run.first_row, rows);
    rows += run.num_rows;
  }
  EXPECT_EQ(rows, 78);
  EXPECT_GE(plan.runs.size(), 4u);
  ModelConfig config;
  config.hidden_size = 64;
  config.num_hidden_layers = 1;
  config.num_attention_heads = 8;
  config.num_key_value_heads = 2;
  config.head_dim = 8;
  config.vocab_size = 10;
  config.intermediate_size = 16;
  const std::uint64_t planned = gpu_gathered_bytes(config, partition_for(config, 0, 1), 78, 40006, at::kBFloat16);
  EXPECT_EQ(planned, 40006u * (2 * 2 * 8 * 2 + 8));
  // Capped scores: every query head has its own copy of the keys, and the longest sequence's keys are in memory in f64,
  // too.
  config.max_position_embeddings = 50000;
  const Partition whole = partition_for(config, 0, 1);
  const std::uint64_t uncapped = gpu_activation_bytes(config, whole, 78, 40006, at::kBFloat16);
  config.attn_logit_softcapping = 50;
  EXPECT_EQ(gpu_gathered_bytes(config, whole, 78, 40006, at::kBFloat16), 40006u * (2 * (2 + 8) * 8 * 2 + 8));
  EXPECT_EQ(gpu_activation_bytes(config, whole, 78, 40006, at::kBFloat16) - uncapped,
            8u * 8 * 40006 * (kCappedCopies * 78 + 4 * 8) + 2 * 78 * 8 * 8 * 2);
  // The same for ALiBi, whose texts may be longer than max_position_embeddings says, and for sinks in f32.
  const std::uint64_t capped = gpu_activation_bytes(config, whole, 78, 40006, at::kBFloat16);
  config.attn_logit_softcapping = 0;
  config.alibi_max = 8;
  config.max_position_embeddings = 100;
  EXPECT_EQ(gpu_activation_bytes(config, whole, 78, 40006, at::kBFloat16), capped);
  config.alibi_max = 0;
  config.attention_sinks = true;
  config.max_position_embeddings = 50000;
  EXPECT_GE(gpu_activation_bytes(config, whole, 78, 40006, at::kFloat), 8u * 8 * 40006 * (kCappedCopies * 78 + 4 * 8));
  EXPECT_LE(gpu_activation_bytes(config, whole, 78, 40006, at::kBFloat16), uncapped + 78 * 3 * 8 * 8 * 2);
}

// The largest layer counts, and rows that later layers read.
TEST(AttentionPlans, LayersOfSeveralSizesAreCounted) {
  ModelConfig config;
  config.hidden_size = 64;
  config.num_hidden_layers = 4;
  config.num_attention_heads = 8;
  config.num_key_value_heads = 2;
  config.head_dim = 8;
  config.vocab_size = 10;
  config.intermediate_size = 16;
  config.sliding_window = 5;
  config.layer_is_sliding = {true, false, true, false};
  const Partition whole = partition_for(config, 0, 1);
  const auto numbers = [&] {
    return (gpu_activation_bytes(config, whole, 5001, 0, at::kBFloat16) -
            gpu_activation_bytes(config, whole, 5000, 0, at::kBFloat16)) /
           2;
  };
  const std::uint64_t plain = numbers();
  config.full_head_dim = 32;
  config.full_kv_heads = 1;
  // Queries, keys and values, outputs, and another copy of keys and values.
  EXPECT_EQ(numbers() - plain, 32u * (8 + 2 + 8 + 2) - 8 * (8 + 4 + 8 + 4));
  config.shared_kv_layers = 2;
  EXPECT_EQ(numbers() - plain, 32u * (8 + 2 + 8 + 2) - 8 * (8 + 4 + 8 + 4) + 2 * 32 * (8 + 2));
  config.attention_gate = AttentionGate::kSigmoid;
  EXPECT_EQ(numbers() - plain, 32u * (8 + 2 + 8 + 2 + 8) - 8 * (8 + 4 + 8 + 4) + 2 * 32 * (8 + 2));
  EXPECT_EQ(gpu_gathered_bytes(config, whole, 78, 40006, at::kBFloat16), 40006u * (2 * 32 * 2 + 8));
}

INSTANTIATE_TEST_SUITE_P(All, FlashAttention,
                         testing::Values(AttentionCase{8, 2, 16}, AttentionCase{8, 2, 16, 33}, AttentionCase{4, 4, 8},
                                         AttentionCase{6, 2, 64, 1}, AttentionCase{8, 2, 16, 250},
                                         AttentionCase{.H = 4, .K = 2, .E = 24, .V = 16},
                                         AttentionCase{.H = 4, .K = 2, .E = 16, .window = 33, .sinks = true},
                                         AttentionCase{.H = 4, .K = 2, .E = 16, .window = 33, .chunked = true},
                                         AttentionCase{.H = 4, .K = 2, .E = 16, .window = 200, .chunked = true}),
                         attention_name);

}  // namespace flash_attention_test
}  // namespace magister::gpu
