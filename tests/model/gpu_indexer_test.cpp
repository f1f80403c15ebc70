// The indexer of sparse latent attention on GPUs, with the kernels on the host: the choice against the CPU's, with
// equal scores and numbers that are none; scores against ATen; and two layers, of which the second one follows the
// first one's choice, against the CPU's. The bits of a row are the same however its text is cut.
#include "model/gpu/gpu_indexer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "magister/model/transformer.h"
#include "model/cpu/attention.h"
#include "model/cpu/decoder_layer.h"
#include "model/gpu/gpu_latent_self_test.h"

namespace magister::gpu {
namespace gpu_indexer_test {

class Choice : public testing::TestWithParam<HostOrder> {
 protected:
  void SetUp() override {
    at::manual_seed(21);
    set_host_order(GetParam());
  }
  void TearDown() override { set_host_order(HostOrder::kAscending); }
};
INSTANTIATE_TEST_SUITE_P(Orders, Choice, testing::Values(HostOrder::kAscending, HostOrder::kDescending));

TEST_P(Choice, IsTheCpus) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const std::int64_t k : {1, 6, 300}) {
    constexpr std::int64_t N = 1100;
    at::Tensor scores_RN = at::randn({8, N});
    scores_RN[1].round_();  // many are equal
    scores_RN[2].fill_(-0.0f).narrow(0, 40, 500).fill_(0.0f);
    scores_RN[3].narrow(0, 3, 900).fill_(nan);
    scores_RN[4].fill_(nan)[9] = -std::numeric_limits<float>::infinity();
    scores_RN[5] *= 1e-3;
    scores_RN[6] = at::arange(N, at::kFloat) - 500;
    const std::vector<std::int32_t> visible_R = {1100, 1099, 700, 1100, 1100, 512, 1100, static_cast<std::int32_t>(k)};
    // Tokens of a text whose first 100 tokens are those of another one, 1,000 rows before it.
    const at::Tensor visible = at::tensor(visible_R, at::kInt), past = at::full({8}, 100, at::kInt),
                     prefix = at::full({8}, 7, at::kInt), own = at::full({8}, 1007, at::kInt);
    KeyPlaces places;
    places.past_R = past.const_data_ptr<std::int32_t>();
    places.prefix_R = prefix.const_data_ptr<std::int32_t>();
    places.own_R = own.const_data_ptr<std::int32_t>();
    const at::Tensor chosen_Rk = at::full({8, k}, -1, at::kInt);
    start(ChooseKeys{data<float>(scores_RN), places, data<std::int32_t>(visible), data<std::int32_t>(chosen_Rk), N, 8,
                     static_cast<int>(k)},
          Queue{});
    for (std::int64_t r = 0; r < 8; ++r) {
      std::vector<std::int32_t> wanted(static_cast<std::size_t>(k));
      choose_best(scores_RN[r].const_data_ptr<float>(), visible_R[static_cast<std::size_t>(r)], k, wanted.data());
      for (std::int32_t& key : wanted) key += key < 100 ? 7 : 1007;
      EXPECT_TRUE(at::equal(chosen_Rk[r], at::tensor(wanted, at::kInt))) << "row " << r << ", " << k << " keys";
    }
  }
}

TEST_P(Choice, OfPagesNamesTheirSlots) {
  const std::int64_t N = 200;
  const at::Tensor scores_RN = at::randn({2, N}), table = at::tensor({9, 4, 7, 1, 0, 3, 8, 2, 6, 5}, at::kInt),
                   sequence = at::tensor({1, 0}, at::kInt), visible = at::tensor({200, 150}, at::kInt),
                   chosen_Rk = at::full({2, 20}, -1, at::kInt);
  KeyPlaces places;
  places.page_table = table.const_data_ptr<std::int32_t>();
  places.stride = 5;
  places.sequence_R = sequence.const_data_ptr<std::int32_t>();
  start(
      ChooseKeys{data<float>(scores_RN), places, data<std::int32_t>(visible), data<std::int32_t>(chosen_Rk), N, 2, 20},
      Queue{});
  for (std::int64_t r = 0; r < 2; ++r) {
    std::vector<std::int32_t> wanted(20);
    choose_best(scores_RN[r].const_data_ptr<float>(), r == 0 ? 200 : 150, 20, wanted.data());
    for (std::int32_t& key : wanted) key = table[(r == 0 ? 5 : 0) + key / 48].item<std::int32_t>() * 48 + key % 48;
    EXPECT_TRUE(at::equal(chosen_Rk[r], at::tensor(wanted, at::kInt))) << r;
  }
}

template <typename A>
void expect_scores(std::int64_t I, std::int64_t E, at::ScalarType type, double limit) {
  constexpr std::int64_t R = 3, N = 150;
  const at::Tensor queries = at::randn({R, I, E}).to(type), weights = at::randn({R, I}),
                   keys = at::randn({N, E}).to(type), zeros = at::zeros({R}, at::kInt),
                   visible = at::tensor({150, 70, 20}, at::kInt), found = at::full({R, N}, 7, at::kFloat);
  KeyPlaces places;
  places.past_R = places.prefix_R = places.own_R = zeros.const_data_ptr<std::int32_t>();
  start(IndexScores<A>{{data<A>(queries), data<float>(weights), data<A>(keys), places, data<std::int32_t>(visible),
                        data<float>(found), N, R, I, E, 20}},
        Queue{});
  const at::Tensor wanted = at::einsum(
      "rin,ri->rn", {at::relu(at::matmul(queries.to(at::kDouble), keys.to(at::kDouble).t())), weights.to(at::kDouble)});
  for (std::int64_t r = 0; r < 2; ++r) {
    const std::int64_t count = r == 0 ? 150 : 70;
    const at::Tensor difference = (found[r].to(at::kDouble) - wanted[r]).narrow(0, 0, count).abs();
    EXPECT_LE((difference.max() / wanted.abs().max()).item<double>(), limit) << I << " heads of " << E;
    EXPECT_TRUE((found[r].narrow(0, count, N - count) == 7).all().item<bool>());
  }
  EXPECT_TRUE((found[2] == 7).all().item<bool>()) << "a row that sees all of its keys";
}

TEST_P(Choice, ScoresAreThoseOfDoubles) {
  expect_scores<float>(5, 18, at::kFloat, 1e-6);
  for (const auto& [I, E] : std::vector<std::pair<std::int64_t, std::int64_t>>{{14, 18}, {16, 32}, {33, 40}, {64, 128}})
    expect_scores<Bf16>(I, E, at::kBFloat16, 1e-6);
}

// A layer with an indexer of its own and one without: the same weights for both kinds of devices.
struct Block {
  static constexpr std::int64_t kHidden = 40, kPositions = 200;
  GpuLayer choosing, following;
  std::unique_ptr<Attention> choosing_on_cpu, following_on_cpu;
  at::Tensor cos_P2 = at::randn({kPositions, 4}), sin_P2 = at::randn({kPositions, 4});

  explicit Block(at::ScalarType dtype) {
    LayerShape shape;
    shape.hidden_size = kHidden;
    shape.heads = 3;
    shape.kv_heads = 1;
    shape.head_dim = 20;
    shape.rotary_dim = 8;
    shape.kv_of_head = {0, 0, 0};
    shape.latent = LatentConfig{.query_rank = 10, .rank = 24, .nope_dim = 12, .rope_dim = 8, .value_dim = 14};
    shape.latent->indexer = IndexerConfig{.heads = 11, .head_dim = 18, .top_k = 6};
    shape.attention_scale = 0.3f;
    for (GpuLayer* layer : {&choosing, &following}) {
      layer->shape = shape;
      layer->shape.has_indexer = layer == &choosing;
      fill(*layer, dtype);
      AttentionWeights plain{{},
                             {layer->qkv_proj.weight_NK.to(at::kFloat), {}},
                             {layer->o_proj.weight_NK.to(at::kFloat), {}},
                             layer->q_norm,
                             layer->k_norm};
      add_plain_latents(*layer, plain, Queue{});
      (layer == &choosing ? choosing_on_cpu : following_on_cpu) =
          std::make_unique<Attention>(layer->shape, std::move(plain));
    }
  }

  static void fill(GpuLayer& layer, at::ScalarType dtype) {
    const auto linear = [dtype](std::int64_t out, std::int64_t in) {
      return to_device({(at::randn({out, in}) * 0.4).to(dtype), {}}, at::kCPU);
    };
    layer.qkv_proj = linear(10 + 32, kHidden);
    layer.o_proj = linear(kHidden, 42);
    layer.q_norm = at::rand({10}) + 0.5;
    layer.k_norm = at::rand({24}) + 0.5;
    layer.latent = GpuLatent{linear(60, 10), linear(78, 24), {}, {}};
    if (dtype == at::kBFloat16)
      layer.latent->key_up_HCN =
          layer.latent->up_proj.weight_NK.view({3, 26, 24}).narrow(1, 0, 12).transpose(1, 2).contiguous();
    if (layer.shape.has_indexer)
      layer.latent->indexer =
          GpuIndexer{linear(198, 10), linear(18, kHidden), linear(11, kHidden), at::rand({18}) + 0.5, at::randn({18})};
  }

  // Outputs of both layers, each of which reads hidden_TD. pages: of latents and of the indexer's keys, of both.
  std::pair<at::Tensor, at::Tensor> of_gpu(const PackedBatch& batch, const at::Tensor& hidden_TD, SparseRows& sparse,
                                           const std::vector<BlockTable>& slots = {},
                                           const std::vector<at::Tensor>& pages = {}) const {
    const Queue queue{};
    const auto multiply = [&](const GpuLinear& linear, const at::Tensor& x) {
      return product_in_tiles(linear, x, linear.prompt_tiles, queue);
    };
    sparse = sparse_rows(batch, slots, 6, at::kCPU);
    std::vector<std::int64_t> places;
    for (std::int64_t s = 0; !slots.empty() && s < batch.num_sequences(); ++s) {
      for (std::int64_t j = 0; j < batch.cu_seqlens[s + 1] - batch.cu_seqlens[s]; ++j) {
        const std::int64_t slot = batch.past(s) + j;
        places.push_back(slots[static_cast<std::size_t>(s)].pages[slot / 48] * 48 + slot % 48);
      }
    }
    std::vector<at::Tensor> outs;
    for (const GpuLayer* layer : {&choosing, &following}) {
      LatentRows rows{multiply(layer->qkv_proj, hidden_TD), cos_P2, sin_P2, batch.positions_T.to(at::kInt)};
      rows.input_TD = hidden_TD;
      if (!slots.empty()) {
        rows.slots_T = at::tensor(places, at::kLong);
        rows.pages = pages[layer == &choosing ? 0 : 1];
        rows.index_pages = pages[2];
      }
      outs.push_back(multiply(layer->o_proj, sparse_attention(*layer, sparse, rows, multiply, queue)).to(at::kFloat));
    }
    return {outs[0], outs[1]};
  }

  static std::vector<at::Tensor> pages(at::ScalarType dtype) {
    return {at::zeros({8, 1, 48, 32}, dtype), at::zeros({8, 1, 48, 32}, dtype), at::zeros({8, 1, 48, 18}, dtype)};
  }
};

PackedBatch batch_of(const std::vector<std::int64_t>& lengths, std::vector<std::int64_t> past = {}) {
  std::vector<std::vector<TokenId>> sequences;
  for (const std::int64_t length : lengths) sequences.emplace_back(static_cast<std::size_t>(length), 0);
  return pack_sequences(sequences, std::move(past));
}

double relative(const at::Tensor& found, const at::Tensor& wanted) {
  return ((found - wanted).abs().max() / wanted.abs().max()).item<double>();
}

TEST(SparseBlocks, AreNearPlainCode) {
  at::manual_seed(22);
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const Block block(dtype);
    const PackedBatch batch = batch_of({1, 6, 7, 60, 130});
    const at::Tensor hidden_TD = at::randn({batch.num_tokens(), Block::kHidden}).to(dtype),
                     wide = hidden_TD.to(at::kFloat);
    SparseRows sparse;
    const auto [chosen, followed] = block.of_gpu(batch, hidden_TD, sparse);
    const at::Tensor rows = batch.positions_T.to(at::kLong), cos = block.cos_P2.index_select(0, rows),
                     sin = block.sin_P2.index_select(0, rows);
    // In f32 plain code makes the choice itself; in bf16 rounding may decide, and it is given.
    KeysAndValues choice;
    if (dtype == at::kBFloat16) choice = seen_keys(batch, sparse);
    const double limit = dtype == at::kFloat ? 1e-5 : 0.02;
    EXPECT_LE(relative(chosen, block.choosing_on_cpu->reference(wide, batch, cos, sin, {}, &choice)), limit);
    EXPECT_LE(relative(followed, block.following_on_cpu->reference(wide, batch, cos, sin, {}, &choice)), limit);
    // With all keys the outputs are others.
    EXPECT_GT(relative(followed, block.following_on_cpu->reference(wide, batch, cos, sin)), 0.1);
  }
}

// Prompts in parts, token by token, and with a beginning that another text has: the bits of whole texts.
TEST(SparseBlocks, ARowsBitsAreItsOwn) {
  at::manual_seed(23);
  const std::vector<std::int64_t> lengths = {1, 7, 60, 130};
  const std::vector<std::vector<std::int32_t>> tables = {{0}, {1}, {7, 2}, {3, 6, 4}};
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const Block block(dtype);
    const PackedBatch batch = batch_of(lengths);
    const at::Tensor hidden_TD = at::randn({batch.num_tokens(), Block::kHidden}).to(dtype);
    SparseRows sparse;
    const auto [chosen, followed] = block.of_gpu(batch, hidden_TD, sparse);
    const std::vector<at::Tensor> pages = Block::pages(dtype);
    const std::vector<std::int64_t> ends = {0, 50, 51, 52, 53, 130};
    for (std::size_t part = 0; part + 1 < ends.size(); ++part) {
      std::vector<std::int64_t> parts, past, rows;
      std::vector<BlockTable> slots;
      for (std::size_t s = 0; s < lengths.size(); ++s) {
        const std::int64_t from = std::min(ends[part], lengths[s]), to = std::min(ends[part + 1], lengths[s]);
        if (from == to) continue;
        parts.push_back(to - from);
        past.push_back(from);
        slots.push_back({tables[s].data(), 0});
        for (std::int64_t j = from; j < to; ++j) rows.push_back(batch.cu_seqlens[s] + j);
      }
      const at::Tensor rows_R = at::tensor(rows, at::kLong);
      const auto [first, second] =
          block.of_gpu(batch_of(parts, past), hidden_TD.index_select(0, rows_R), sparse, slots, pages);
      EXPECT_TRUE(at::equal(first, chosen.index_select(0, rows_R))) << "part " << part << ", " << dtype;
      EXPECT_TRUE(at::equal(second, followed.index_select(0, rows_R))) << "part " << part << ", " << dtype;
    }
    PackedBatch shared = batch_of({130, 30}, {0, 100});
    shared.prefix_of_S = {0, 0};
    const std::int64_t begin = batch.cu_seqlens[3];
    const auto [first, second] = block.of_gpu(
        shared, at::cat({hidden_TD.narrow(0, begin, 130), hidden_TD.narrow(0, begin + 100, 30)}, 0), sparse);
    EXPECT_TRUE(at::equal(first.narrow(0, 130, 30), chosen.narrow(0, begin + 100, 30))) << dtype;
    EXPECT_TRUE(at::equal(second.narrow(0, 130, 30), followed.narrow(0, begin + 100, 30))) << dtype;
  }
}

}  // namespace gpu_indexer_test
}  // namespace magister::gpu
